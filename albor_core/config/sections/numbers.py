"""Types of fields: numbers as people write them (`32K`, `3e-4`), within bounds; words."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from albor_core.config.hf_config import MOST_LAYERS
from albor_core.run.values.numbers import parse_count, parse_real


def _text(value: object) -> object:
    """Numbers and booleans where a tag is a word: `year: 2026` means "2026"."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def convert_with(parse: Any) -> Any:
    """Our sentence as a pydantic error; a ValueError would be prefixed with 'Value error, '."""

    def convert(value: object) -> object:
        try:
            return parse(value)
        except ValueError as error:
            raise PydanticCustomError("value", str(error)) from error

    return convert


def _real(value: object) -> float:
    try:
        return parse_real(value)
    except OverflowError:  # beyond a double
        return math.inf


INT = BeforeValidator(convert_with(parse_count), json_schema_input_type=int | str)
REAL = BeforeValidator(convert_with(_real), json_schema_input_type=float | str)

Tokens = Annotated[int, Field(ge=2, le=2**62), INT]  # the last one is only a target
Count = Annotated[int, Field(gt=0, le=2**62), INT]  # at least one
CountOrZero = Annotated[int, Field(ge=0, le=2**62), INT]
Layers = Annotated[int, Field(ge=1, le=MOST_LAYERS), INT]
Threads = Annotated[int, Field(ge=1, le=1024), INT]  # OpenMP dies of 100,000

# Bounds of numbers are wide, and inside what fp32 holds together with their products.
Rate = Annotated[float, Field(ge=1e-12, le=100), REAL]
RateOrZero = Annotated[float, Field(ge=0, le=100), REAL]
Epsilon = Annotated[float, Field(ge=1e-30, lt=1), REAL]
Scale = Annotated[float, Field(ge=0.5, le=10), REAL]
ScaleOrZero = Annotated[float, Field(ge=0, le=10), REAL]
Deviation = Annotated[float, Field(ge=1e-6, le=10), REAL]
Factor = Annotated[float, Field(ge=1e-12, le=1e12), REAL]
Hours = Annotated[float, Field(gt=0, le=1e6), REAL]
Amount = Annotated[float, Field(gt=0, le=1e12), REAL]
Milliseconds = Annotated[float, Field(gt=0, le=1e9), REAL]
RefreshMs = Annotated[int, Field(ge=100, le=3_600_000), INT]
Seconds = Annotated[float, Field(ge=0.001, le=365 * 86400), REAL]
SecondsOrZero = Annotated[float, Field(ge=0, le=365 * 86400), REAL]
Finite = Annotated[float, Field(ge=-1e12, le=1e12), REAL]
Weight = Annotated[float, Field(ge=0, le=1e12), REAL]
Portion = Annotated[float, Field(gt=0, le=1), REAL]
Fraction01 = Annotated[float, Field(ge=0, lt=1), REAL]
Word = Annotated[str, BeforeValidator(_text, json_schema_input_type=str | int | float | bool)]
