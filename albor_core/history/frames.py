"""Converts tables for the user's own tools: lists, numpy, pandas, polars or pyarrow, if installed.

A package is loaded when its conversion is asked for, and no conversion needs another package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from albor_core.history.columns import Columns, plain, rows_of
from albor_core.run.errors import AlborError


class Frame(ABC):
    """A table whose columns are read when it is converted."""

    @abstractmethod
    def columns(self) -> Columns:
        """Every column by its name, of equal length."""

    def to_list(self) -> list[dict[str, Any]]:
        """One mapping per row, with every column in it; None is unknown, NaN a value."""
        columns = self.columns()
        return [dict(zip(columns, row, strict=True)) for row in rows_of(columns)]

    def to_numpy(self) -> dict[str, Any]:
        """One array per column: float64, int64 or bool if all its values are of that type, else
        objects. An unknown number is NaN.
        """
        numpy = package("numpy", "numpy arrays")
        return {
            name: _array(numpy, kind, values) for name, (kind, values) in self.columns().items()
        }

    def to_pandas(self) -> Any:
        """A pandas.DataFrame. Integers and booleans with unknown values are of pandas' nullable
        types; an unknown float is NaN.
        """
        pandas = package("pandas", "a pandas data frame")
        numpy = package("numpy", "a pandas data frame")
        nullable = {"int": "Int64", "bool": "boolean"}
        found = {}
        for name, (kind, values) in self.columns().items():
            if kind in nullable and None in values:
                found[name] = pandas.array(values, dtype=nullable[kind])
            elif kind == "text":
                found[name] = list(map(plain(kind), values))
            else:
                found[name] = _array(numpy, kind, values)
        return pandas.DataFrame(found)

    def to_polars(self) -> Any:
        """A polars.DataFrame; unknown is null, NaN is NaN. Columns of several types are text."""
        polars = package("polars", "a polars data frame")
        types = {
            "bool": polars.Boolean, "int": polars.Int64, "float": polars.Float64,
            "texts": polars.List(polars.String),
        }  # fmt: skip
        return polars.DataFrame(
            [
                polars.Series(name, [*map(plain(kind), values)], types.get(kind, polars.String))
                for name, (kind, values) in self.columns().items()
            ]
        )

    def to_arrow(self) -> Any:
        """A pyarrow.Table; unknown is null, NaN is NaN. Columns of several types are text."""
        package("pyarrow", "an Arrow table")
        from albor_core.history.arrow import table  # noqa: PLC0415  loads pyarrow

        return table(self.columns())


def package(name: str, product: str) -> Any:
    """The module `name`, imported now. Raises AlborError with the command that installs it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise AlborError(
            f"cannot make {product}: {name} is not installed", hint=f"pip install {name}"
        ) from error


def _array(numpy: Any, kind: str, values: Sequence[Any]) -> Any:
    if kind == "float" or (kind == "int" and None in values):
        return numpy.array(values, dtype=numpy.float64)  # None is NaN there
    if kind == "int" or (kind == "bool" and None not in values):
        return numpy.array(values, dtype=numpy.int64 if kind == "int" else numpy.bool_)
    made = numpy.empty(len(values), dtype=object)
    for place, value in enumerate(values):  # one by one: lists are values here, not dimensions
        made[place] = value
    return made
