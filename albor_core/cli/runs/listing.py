"""`albor runs ls`: the run table, filtered, sorted, with the columns one likes, or in groups."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.goals import goal_option
from albor_core.cli.common.lookup import Absent, absent_runs, db_option, open_table
from albor_core.cli.common.output import (
    clean,
    emit,
    json_option,
    print_line,
    print_note,
    screen_width,
)
from albor_core.cli.runs.run_columns import (
    FIELDS,
    Listing,
    default_table,
    duration_of,
    group_table,
    run_table,
)
from albor_core.cli.runs.value_groups import (
    GroupOrder,
    ValueGroups,
    empty_groups,
    grouped_by,
    value_groups,
    value_table,
)
from albor_core.cli.runs.view_option import ListRequest, known_sort, list_request, view_option
from albor_core.run.errors import UsageError
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.feed.runs.listed_status import Now
    from albor_core.feed.runs.store_lag import Arrears
    from albor_core.run.rundir import RunDir
    from albor_core.run.values.directions import Goals
    from albor_core.run.values.main_metrics import MainMetric
    from albor_core.store.query.group import GroupRow
    from albor_core.store.query.listing import ListColumn
    from albor_core.store.query.table import RunList
    from albor_core.store.query.terms import Filter
    from albor_core.store.rows.run_row import RunRow

_NEGATED = re.compile(r"""-(?=[^-\s:<>=!"',]+[:<>=!]|["'])""")
_MOST = (1 << 63) - 1  # what SQLite takes
_CATCH_UP_S = 5.0  # for the last lines of ended runs that are not indexed
_SPECS = {"tokens": ",.0f", "loss": ".4f", "ratio": ",.2f", "rate": ",.0f", "share": ".1%"}


class FilterCommand(click.Command):
    """Takes `-tag:x` as a term of the filter instead of as an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        said = [_NEGATED.sub("!", word, count=1) for word in args[:end]]
        return super().parse_args(ctx, said + args[end:])


def _say_global(context: click.Context, parameter: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        print_note("--global changes nothing: the list is always global")


@click.command(cls=FilterCommand)
@click.argument("terms", nargs=-1, metavar="[FILTER]...")
@click.option(
    "--limit", metavar="N", default=100, type=Count(1, _MOST), show_default=True,
    help="Show at most N runs or groups.",
)  # fmt: skip
@click.option(
    "--sort", default="created", show_default=True,
    help="Sort by a column, metric or param: newest, best, or (direction unknown) largest first.",
)  # fmt: skip
@goal_option
@click.option("--reverse", is_flag=True, help="Reverse the order.")
@click.option(
    "--columns", help="Show these columns, comma-separated: id,status,loss,lr,val/loss:min."
)
@click.option(
    "--group", "grouped", is_flag=True, help="Group runs of one config and show mean and spread."
)
@click.option(
    "--group-by", "by", metavar="KEY",
    help="Group runs by a param, metric or column: a row a value, with mean and spread.",
)  # fmt: skip
@click.option("--experiment", help="Show only runs of this experiment.")
@click.option("--name", help="Show only runs whose name or id contains this.")
@click.option("--global", is_flag=True, hidden=True, expose_value=False, callback=_say_global)
@view_option
@db_option
@json_option
def ls(
    terms: tuple[str, ...],
    limit: int,
    sort: str,
    goals: tuple[str, ...],
    reverse: bool,
    columns: str | None,
    grouped: bool,
    by: str | None,
    experiment: str | None,
    name: str | None,
    view: str | None,
    db: str | None,
    as_json: bool,
) -> None:
    """List runs, pinned ones first, then the newest, with what each is doing now.

    \b
    A FILTER is one or more terms, all of which must hold:
      status:running,failed     running paused restarting unguarded hung silent queued
                                completed stopped failed lost unknown, or active, ended
      tag:a experiment:b host:c kind:train   exact, or the beginning: host:gpu*
      group:a job_type:eval                  as the program said in track.start
      name:part id:start commit:start parent:RUN
      train/loss<3 val/loss:min<=2.5         a metric: last, best, min, max or count
      lr>=1e-4 optimizer.name:adamw step>0   a param by its end, a column of the table
      since:2d before:2026-01-31             30m 12h 2d 1w, or a time in UTC
      has:nan,alert,note,tag,artifact,params,parent,end      pinned
      words "in quotes"                      in names, notes, tags and params
    `-` or `!` before a term: not. Quote < and > for the shell.
    """
    from albor_core.run.values.directions import parse_goals

    if grouped and by is not None:
        raise UsageError("cannot group twice: --group and --group-by", hint="one of them")
    listed = list_request(view, terms, sort, reverse, columns, None if grouped else by)
    request = _Request(
        listed,
        _filter(" ".join(listed.terms)),
        parse_goals(goals),
        limit,
        experiment,
        name,
        grouped,
    )
    is_whole = not (listed.terms or experiment or name)
    found = Listing((), 0, {}, {}, (), {}, () if grouped else None)
    seen = _Seen(found, empty_groups(listed.by), Absent([], 0), [])
    reader = open_table(db)
    if reader is not None:
        with reader:
            seen = _read(reader, request, seen, is_here=db is None)
    _show(seen, request, is_whole=is_whole, as_json=as_json)


class _Request(NamedTuple):
    """What is asked for. `grouped`: by config."""

    listed: ListRequest
    where: Filter
    goals: Goals
    limit: int
    experiment: str | None
    name: str | None
    grouped: bool

    def grouping(self, by: str | None) -> int | None:
        """How many groups of runs of one config are wanted, None for none at all: all of them where
        runs are grouped by a value, since they say which ranks belong to one run.
        """
        if by is not None:
            return _MOST
        return self.limit if self.grouped else None


class _Seen(NamedTuple):
    """What there is, and what is not in the store; `begun` are ids of runs at work."""

    found: Listing
    groups: ValueGroups | None
    absent: Absent
    begun: list[str]


def _read(reader: RunList, request: _Request, seen: _Seen, *, is_here: bool) -> _Seen:
    """The answer of a store; `is_here`: it is the one of this home."""
    if is_here:
        absent = absent_runs(reader)
        seen = seen._replace(absent=absent, begun=_bring_in(absent.coming))
    listed = request.listed
    sort, by = known_sort(listed, reader), _known_key(listed, reader)
    descending = reader.is_descending(sort, request.goals, request.experiment)
    asked = {
        "limit": request.limit,
        "sort": sort,
        "descending": descending != listed.reverse,
        "experiment": request.experiment,
        "name": request.name,
    }
    make = _current if is_here else _listing
    found = make(reader, request.where, listed.columns, asked, grouping=request.grouping(by))
    _refuse_unknown(reader, found, listed.columns, is_of_view="columns" in listed.of_view)
    order = GroupOrder(sort if listed.is_sorted else by, descending, listed.reverse)
    groups = value_groups(reader, found, by, listed.columns, order)
    return seen._replace(found=found, groups=groups)


def _show(seen: _Seen, request: _Request, *, is_whole: bool, as_json: bool) -> None:
    found, groups = seen.found, seen.groups
    if groups is not None and (as_json or groups.groups):
        _show_groups(groups, found, request.limit, as_json=as_json)
    elif as_json:
        emit(_document(found))
    else:
        is_behind = is_whole and seen.absent.missing > 0
        _print_listing(found, request.listed.columns, is_whole=is_whole, is_behind=is_behind)
        _tell_of_states(found, request.where)
    _print_notes(found, seen.absent.missing if is_whole else 0, seen.begun)


def _print_notes(found: Listing, missing: int, begun: Sequence[str]) -> None:
    """What the list lacks."""
    if missing:
        from albor_core.store.file.paths import rebuild_hint

        print_note(
            f"{counted(missing, 'registered run', 'is', 'are')} not in the store; "
            f"next: {rebuild_hint()}"
        )
    if begun:
        print_note(f"just begun, and not in the list yet: {_some(begun)}")
    for line in _shortfalls(found.arrears):
        print_note(line)


def _bring_in(coming: Sequence[RunDir]) -> list[str]:
    """Have runs in the list that ended before anybody indexed them; returns those at work that are
    not there yet.
    """
    if not coming:
        return []
    from albor_core.feed.runs.store_lag import index_new

    return [run.id for run in index_new(coming, timeout_s=_CATCH_UP_S)]


def _tell_of_states(found: Listing, where: Filter) -> None:
    """Note how to ask for a status, if nothing was found: a bare word is searched in names."""
    from albor_core.store.query.filter import meant_status

    for term in () if found.rows else where.terms:
        if term.kind == "words" and (meant := meant_status(str(term.values[0]))):
            print_note(f"{meant} asks for the state")


def _print_listing(
    found: Listing, wanted: Sequence[str], *, is_whole: bool, is_behind: bool
) -> None:
    if not found.rows:
        start = "no runs yet; start one with: albor demo"
        print_line(
            "no run matches" if not is_whole else "no runs in the store" if is_behind else start
        )
    elif found.groups is not None:
        print_line(group_table(found.groups, found.extra))
    else:
        print_line(run_table(found, wanted) if wanted else default_table(found, screen_width()))
        if found.total > len(found.rows):
            print_note(f"{len(found.rows)} of {found.total} runs; more with --limit")


def _current(
    reader: RunList,
    where: Filter,
    wanted: Sequence[str],
    asked: dict[str, Any],
    *,
    grouping: int | None,
) -> Listing:
    """The listing once ended runs have all their lines in the store, as far as that can be had."""
    from albor_core.feed.runs.store_lag import (
        find_arrears,
        find_being_read,
        index_arrears,
    )

    def late(shown: Collection[str]) -> tuple[dict[str, Arrears], list[str]]:
        arrears = find_arrears(reader, shown)
        short = [run for run, one in arrears.items() if one.unindexed_bytes]
        return arrears, [*short, *find_being_read(reader, shown)]

    index_arrears(reader, late(())[1], timeout_s=_CATCH_UP_S)
    found = _listing(reader, where, wanted, dict(asked), grouping=grouping)
    shown = [row.id for row in found.rows]
    arrears, again = late(shown)
    if again:
        index_arrears(reader, again, timeout_s=_CATCH_UP_S)
        found = _listing(reader, where, wanted, dict(asked), grouping=grouping)
        arrears = find_arrears(reader, shown)
    return found._replace(arrears=arrears)


def _shortfalls(arrears: Mapping[str, Arrears]) -> Iterator[str]:
    """A sentence for each kind of thing that the figures of ended runs are short of."""
    late = {run: one.unindexed_bytes for run, one in arrears.items() if one.unindexed_bytes}
    if late:
        from albor_core.store.file.paths import rebuild_hint

        yield (
            f"what is shown of {_some(late)} may be a part: {sum(late.values()):,} bytes of journal"
            f" are not in the store yet; next: {rebuild_hint()}"
        )
    lost = {run: one.lines_lost for run, one in arrears.items() if one.lines_lost}
    if lost:
        count = counted(sum(lost.values()), "line")
        yield f"{count} that {_some(lost)} logged could not be written"


def _some(runs: Collection[str]) -> str:
    names = [clean(run) for run in runs]
    return " ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def _filter(text: str) -> Filter:
    from albor_core.store.query.terms import Filter

    if not text.strip():
        return Filter()
    from albor_core.store.query.filter import parse_filter

    return parse_filter(text)


def _listing(
    reader: RunList,
    where: Filter,
    wanted: Sequence[str],
    asked: dict[str, Any],
    *,
    grouping: int | None,
) -> Listing:
    from albor_core.feed.runs.listed_status import now_of, statuses_for

    if where.terms:
        from albor_core.store.query.names import Unknown

        unknown = Unknown(where)
        unknown.look(reader)
        unknown.refuse()
    words = statuses_for(reader, where)
    asked |= {"where": where, "statuses": words, "pinned_first": True}
    rows = reader.runs(**asked if grouping is None else {**asked, "limit": None})
    columns = _extra(wanted)
    groups = None if grouping is None else _groups(reader, rows, columns, grouping)
    total = len(rows)
    if groups is not None:
        members = {run for group in groups for run in (*group.runs, *group.ranks)}
        rows = tuple(row for row in rows if row.id in members)
    elif total == asked["limit"]:
        total = max(total, reader.count(where, words))
    ids = [row.id for row in rows]
    cells = reader.cells(ids, columns)
    now = {row.id: now_of(row) for row in rows}
    return Listing(
        tuple(one.row for one in now.values()),
        total,
        {run: one.status.word for run, one in now.items()},
        reader.parents(ids),
        tuple(":".join(part for part in column if part) for column in columns),
        cells,
        groups,
        {run: one.status.silent_s for run, one in now.items()},
        _mains(reader, now),
    )


def _mains(reader: RunList, now: Mapping[str, Now]) -> dict[str, tuple[MainMetric, ...]]:
    """The metrics that stand for each run."""
    from albor_core.store.file.standing import Standing

    stored = reader.standings(now)
    return {
        run: stored.get(run, Standing()).with_live(one.told).chosen() for run, one in now.items()
    }


def _groups(
    reader: RunList, rows: Sequence[RunRow], columns: Sequence[ListColumn], limit: int
) -> tuple[GroupRow, ...]:
    from albor_core.store.query.group import groups_of

    return groups_of(reader, rows, columns)[: max(limit, 0)]


def _extra(wanted: Sequence[str]) -> list[ListColumn]:
    """The columns that are metrics or params."""
    from albor_core.store.query.listing import parse_column

    return [parse_column(word) for word in wanted if word not in FIELDS]


def _refuse_unknown(
    reader: RunList, found: Listing, wanted: Sequence[str], *, is_of_view: bool
) -> None:
    """Raise UsageError if a column names what no run of a store with runs has; one of a view stays
    empty, with a note.
    """
    from albor_core.store.query.listing import TEXT_COLUMNS

    by_column = zip(_extra(wanted), *found.values.values(), strict=True)
    columns = [column for column, *values in by_column if not {*values} - {None}]
    asked = (one for one in columns if one.stat or one.name not in TEXT_COLUMNS)
    gone = [column.name for column in asked if not reader.is_known(*column)]
    if not gone or reader.is_empty():
        return
    if is_of_view:
        names = ", ".join(clean(name) for name in gone)
        print_note(f"no run has {names}, of the view's columns")
        return
    raise _unknown(reader, gone[0], "show column")


def _known_key(listed: ListRequest, reader: RunList) -> str | None:
    """What runs are grouped by. Raises UsageError where no run of a store with runs has it; a view
    is shown without groups then.
    """
    from albor_core.store.query.listing import TEXT_COLUMNS

    for column in _extra([] if listed.by is None else [listed.by]):
        is_known = reader.is_known(*column) or (column.name in TEXT_COLUMNS and not column.stat)
        if is_known or reader.is_empty():
            continue
        if "by" not in listed.of_view:
            raise _unknown(reader, column.name, "group by")
        print_note(f"no run has {clean(column.name)}, which the view groups by")
        return None
    return listed.by


def _unknown(reader: RunList, name: str, verb: str) -> UsageError:
    from albor_core.store.file.crowded import logged_without_room, without_room
    from albor_core.store.query.listing import TEXT_COLUMNS
    from albor_core.store.query.names import nearest

    if run := logged_without_room(reader.crowded(), name):
        what, hint = without_room(run, name)
        return UsageError(f"cannot {verb} {name!r}: {what}", hint=hint)
    close = nearest(name, {*reader.measured(), *FIELDS, *TEXT_COLUMNS})
    return UsageError(
        f"cannot {verb} {name!r}: no run has such a metric or param{close}",
        hint="albor runs show RUN has the metrics and params of a run",
    )


def _show_groups(groups: ValueGroups, found: Listing, limit: int, *, as_json: bool) -> None:
    """The first groups by a value, with `as_json` also the runs in them."""
    shown = groups._replace(groups=groups.groups[:limit])
    if as_json:
        members = {run for one in shown.groups for run in (*one.runs, *one.ranks)}
        rows = tuple(row for row in found.rows if row.id in members)
        document = _document(found._replace(rows=rows, groups=None))
        document["grouped_by"] = grouped_by(shown, len(groups.groups))
        emit(document)
        return
    print_line(value_table(shown, screen_width()))
    if len(groups.groups) > limit:
        print_note(f"{limit} of {len(groups.groups)} groups; more with --limit")


def _document(found: Listing) -> Any:
    from albor_core.feed.runs.store_lag import Arrears

    document: Any = {
        "schema": "albor.runs.ls/1",
        "total": found.total,
        "runs": [
            {
                **vars(row),
                "status": found.words[row.id],
                "silent_s": found.silent_s.get(row.id),
                "parent": found.parents.get(row.id),
                **found.arrears.get(row.id, Arrears())._asdict(),
                "metrics": [one._asdict() for one in found.mains.get(row.id, ())],
                "duration_s": duration_of(row, found.words[row.id]),
                "values": dict(zip(found.extra, found.values.get(row.id, ()), strict=False)),
            }
            for row in found.rows
        ],
    }
    if found.groups is not None:
        document["groups"] = [
            {**vars(group), "bands": {name: vars(band) for name, band in group.bands.items()}}
            for group in found.groups
        ]
    return document
