"""`albor runs ls --view NAME`: what a view says, where the command line does not."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

import click
from click.core import ParameterSource

from albor_core.cli.common.output import clean, print_note
from albor_core.cli.runs.run_columns import FIELDS

if TYPE_CHECKING:
    from albor_core.feed.workspace.views import View
    from albor_core.store.query.table import RunList

view_option = click.option(
    "--view", metavar="NAME",
    help="Show a view of the cockpit: its filter, columns, order and group, where not given here.",
)  # fmt: skip
_FIELD_OF = {  # columns of the cockpit's list; "" has none here
    **{"state": "status", "run": "name", "done": "step", "took": "duration", "alert": "alerts"},
    **{"ppl": "val_ppl", "tok/s": "tokens_per_s", "ends": "age", "seen": "age", "trend": ""},
}
_SORT_OF = {"": "created", "recent": "created", "ends": "created", "duration": "elapsed_s"}
_PLAIN = re.compile(r"""[^-!:<>=!"'][^:<>=!"']*""")  # words alone


class ListRequest(NamedTuple):
    """What the list is asked for; `by` is what runs are grouped by. `of_view` are the options that
    a view has answered, `is_sorted` says whether an order was chosen at all.
    """

    terms: tuple[str, ...]
    sort: str
    reverse: bool
    columns: tuple[str, ...]
    by: str | None = None
    of_view: frozenset[str] = frozenset()
    is_sorted: bool = False


def list_request(
    name: str | None,
    terms: tuple[str, ...],
    sort: str,
    reverse: bool,
    columns: str | None,
    by: str | None,
) -> ListRequest:
    """What was said, filled up by the view of this name. Raises NotFoundError, ConfigError."""
    wanted = tuple(word.strip() for word in (columns or "").split(",") if word.strip())
    request = ListRequest(terms, sort, reverse, wanted, by, is_sorted=not _is_silent("sort"))
    if name is None:
        return request
    from albor_core.feed.workspace.views import ViewsFile

    file = ViewsFile()
    views = file.read()
    view = views.view(name, file.path)
    if views.problem:
        print_note(views.problem)
    silent = {one for one in ("terms", "sort", "reverse", "columns") if _is_silent(one)}
    if request.terms:
        silent.discard("terms")
    if _is_silent("by") and _is_silent("grouped"):
        silent.add("by")
    return _filled(request, view, silent)._replace(of_view=frozenset(silent))


def _filled(request: ListRequest, view: View, silent: Collection[str]) -> ListRequest:
    """The request with what a view says of the options that are silent."""
    if "sort" in silent:  # a view's direction is that of its own order
        is_reversed = request.reverse != view.is_reversed
        sort = view_sort(view)
        request = request._replace(sort=sort, reverse=is_reversed, is_sorted=bool(view.sort))
    if "terms" in silent and view.filter.strip():
        request = request._replace(terms=tuple(_terms(view.filter)))
    if "columns" in silent and view.columns:
        request = request._replace(columns=tuple(_columns(view)))
    if "by" in silent and view.group:
        request = request._replace(by=_FIELD_OF.get(view.group, view.group) or None)
    return request


def _is_silent(option: str) -> bool:
    """Whether the command line leaves an option to its default."""
    source = click.get_current_context().get_parameter_source(option)
    return source in (None, ParameterSource.DEFAULT)


def view_sort(view: View) -> str:
    """What `--sort` calls the order of a view."""
    said = _SORT_OF.get(view.sort, view.sort)
    return said if said in _SORT_OF.values() else _FIELD_OF.get(said, said) or "created"


def known_sort(request: ListRequest, reader: RunList) -> str:
    """The order; of a view the usual one where no run has what it is by any more."""
    sort = request.sort
    if "sort" not in request.of_view:
        return sort
    from albor_core.store.query.listing import SORT_KEYS, TEXT_COLUMNS, parse_column

    column = parse_column(sort)
    is_known = sort in SORT_KEYS or column.name in TEXT_COLUMNS or reader.is_known(*column)
    if is_known or reader.is_empty():
        return sort
    print_note(f"no run has {clean(sort)}, which the view sorts by")
    return "created"


def _columns(view: View) -> Iterator[str]:
    for column in view.columns:
        field = _FIELD_OF.get(column, column)
        if field and (field in FIELDS or field == column):
            yield field


def _terms(text: str) -> Iterator[str]:
    """A filter of the list; there a word also means a state."""
    from albor_core.store.query.filter import meant_status

    for word in text.split() if _PLAIN.fullmatch(text.strip()) else (text,):
        yield meant_status(word) or word
