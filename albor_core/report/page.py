"""One or more runs as a single HTML page for a model card: charts, verdict, what differs.

The page holds everything it shows: no script, no font, no request (a content policy in the page
forbids them). Texts of runs are data: control characters made visible, then escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from albor_core.picture.chart import ReportCurve, curve_style, look_of, svg
from albor_core.report.scores import (
    MOST_SCORES,
    PREFIX,
    ScoreBar,
    bars_svg,
    captions,
    newest_scores,
)
from albor_core.run.rundir import RunDir
from albor_core.run.values.clean import clean
from albor_core.run.values.directions import Goals
from albor_core.run.values.quantity import UNKNOWN, count, figure
from albor_core.store.diff.compare import MOST_RUNS, diff_runs
from albor_core.store.file.paths import local_store
from albor_core.store.query.reader import Reader
from albor_core.store.rows.run_row import RunRow
from albor_core.store.rows.series import Series

POINTS = 300
MOST_CHARTS = 24
_FIRST = (
    "val/loss",
    "train/loss",
    "val/ppl",
    "val/bpb",
    "optim/lr",
    "optim/grad_norm",
    "perf/tokens_per_s",
)
_CHARS = 300
_STYLE = """
:root{color-scheme:light dark;--ink:#16181d;--dim:#676b75;--line:#dfd9cc;--ground:#faf8f4}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ef;--dim:#8d93a5;--line:#2b3040;--ground:#12141c}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--ground);max-width:1180px;
margin:2em auto;padding:0 1em}h1{font-size:1.5em}h2{font-size:1.1em;margin:2em 0 .5em}
table{border-collapse:collapse;display:block;overflow-x:auto}
td,th{padding:.25em .8em;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}th{color:var(--dim);font-weight:500}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(460px,1fr));gap:1em}
figure{margin:0;border:1px solid var(--line);border-radius:6px;padding:.6em}
figcaption{font-weight:600}
svg{width:100%;height:auto}.grid{stroke:var(--line)}text{fill:var(--dim);font-size:11px}
text.broken{fill:#c02b2b;font-size:14px}polyline{fill:none;stroke-width:1.6}.band{opacity:.18}
.whisker{stroke:var(--ink);stroke-width:1.5}rect{stroke:none}
.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.4em}
.key.d1,.key.d2{background-image:linear-gradient(90deg,transparent 40%,var(--ground) 40% 60%,
transparent 60%)}.key.d2{background-size:50%}
.dim{color:var(--dim)}footer{margin:3em 0;color:var(--dim)}
""" + curve_style()
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(
    reader: Reader,
    run_ids: Sequence[str],
    *,
    metric: str | None = None,
    goals: Goals | None = None,
) -> str:
    """The page of one to 26 runs, the first of more. Raises NotFoundError for a run that the store
    does not know, UsageError or StoreError as `diff_runs` does.
    """
    rows = [reader.run(run_id) for run_id in run_ids[:MOST_RUNS]]
    difference = (
        diff_runs(reader, [row.id for row in rows], metric=metric, goals=goals).to_json()
        if len(rows) > 1
        else None
    )
    title = " / ".join(_text(row.name or row.id) for row in rows)
    made = datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = [
        f"<h1>{title}</h1>",
        _summary(rows),
        _left_out(run_ids[MOST_RUNS:]),
        *(_verdicts(difference, rows) if difference else ()),
        _scores(reader, rows, goals),
        "<h2>Curves</h2>",
        _charts(reader, rows),
        *(_differences(difference) if difference else ()),
        f"<footer>Made by <code>albor report</code> on {made} from measured runs.</footer>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _summary(rows: Sequence[RunRow]) -> str:
    heads = (
        "run", "experiment", "end", "step", "tokens", "loss", "val loss", "best val loss",
        "val ppl", "tok/s", "seed", "commit", "tags",
    )  # fmt: skip
    keys = [look_of(i).replace("c", "k", 1) for i in range(len(rows))]
    cells = [
        (
            f'<span class="key {keys[i]}"></span>{_text(row.name or row.id)}',
            _text(row.experiment),
            _text(row.ended_status or "no end recorded"),
            _shown(count(row.last_step)),
            _shown(count(row.tokens)),
            *(_shown(figure(v, "loss")) for v in (row.loss, row.val_loss, row.best_val_loss)),
            _shown(figure(row.val_ppl)),
            _shown(count(row.tokens_per_s)),
            _shown(UNKNOWN if row.seed is None else str(row.seed)),
            _text((row.git_commit or "")[:9]),
            _text(" ".join(row.tags)),
        )
        for i, row in enumerate(rows)
    ]
    return _table(heads, cells, numbers=range(3, 11))


def _left_out(runs: Sequence[str]) -> str:
    if not runs:
        return ""
    named = _text(" ".join(runs))
    return f'<p class="dim">{len(runs)} more were asked for and left out: {named}</p>'


def _verdicts(document: Mapping[str, Any], rows: Sequence[RunRow]) -> Iterator[str]:
    names = {row.id: row.name or row.id for row in rows}
    yield f"<h2>Verdict on {_text(document['metric'])}</h2>"
    if (count := max((one["comparisons"] for one in document["verdicts"]), default=1)) > 1:
        yield f"<p>Verdicts and intervals are corrected for {count} comparisons (Holm).</p>"
    yield "<ul>"
    for one in document["verdicts"]:
        interval = one.get("interval")
        rests = ""
        if interval and None not in interval:
            of = f" of {_text(one['metric'])}" if one["metric"] else ""
            rests = f" (difference{of}, {one['confidence']:.0%} interval"
            rests += f" {interval[0]:.4g} to {interval[1]:.4g})"
        yield (
            f"<li><b>{_text(names.get(one['run'], one['run']))}</b> against "
            f"{_text(names.get(one['against'], one['against']))}: "
            f"<b>{_text(one['outcome'] or 'no verdict')}</b>"
            f'{rests} <span class="dim">{_text(one.get("detail") or "")}</span></li>'
        )
    yield "</ul>"


def _differences(document: Mapping[str, Any]) -> Iterator[str]:
    names = [_text(run.get("name") or run["id"]) for run in document["runs"]]
    for key in ("config", "code", "data", "environment"):
        if changes := document[key]:
            cells = [(_text(c["key"]), *(_text(_value(v)) for v in c["values"])) for c in changes]
            yield f"<h2>{key.capitalize()}: what differs</h2>{_table(('field', *names), cells)}"
    cells = [
        (_text(name), *(_shown(figure(None if s is None else s["last"], name)) for s in stats))
        for name, stats in document["metrics"].items()
    ]
    if cells:
        numbers = range(1, len(names) + 1)
        yield f"<h2>Last values</h2>{_table(('metric', *names), cells, numbers=numbers)}"


def _charts(reader: Reader, rows: Sequence[RunRow]) -> str:
    found: dict[str, list[ReportCurve]] = {}
    for row in rows:
        for key, series in _curves(reader, row):
            label = clean(row.name or row.id, limit=_CHARS)
            parts = (series.minimum, series.mean, series.maximum)
            low, mean, high = (tuple(map(float, part)) for part in parts)
            trace = ReportCurve(label, tuple(map(float, series.steps)), low, mean, high)
            found.setdefault(key, []).append(trace)
    keys = sorted(found, key=lambda k: (_FIRST.index(k) if k in _FIRST else len(_FIRST), k))
    figures = [
        f"<figure><figcaption>{_text(key)}</figcaption>"
        f"{svg(clean(key, limit=80), found[key])}</figure>"
        for key in keys[:MOST_CHARTS]
    ]
    if not figures:
        return '<p class="dim">No run here has measured anything.</p>'
    left = len(keys) - MOST_CHARTS
    more = f'<p class="dim">and {left} more metrics</p>' if left > 0 else ""
    return f'<div class="charts">{"".join(figures)}</div>{more}'


def _scores(reader: Reader, rows: Sequence[RunRow], goals: Goals | None) -> str:
    """Bar charts of evaluation scores, one bar per run, in the order of the runs; "" if there are
    none."""
    found: dict[str, list[ScoreBar]] = {}
    for place, row in enumerate(rows):
        label = clean(row.name or row.id, limit=_CHARS)
        with _own(reader, row) as own:
            for name, bar in newest_scores(own, row.id, place, label).items():
                found.setdefault(name, []).append(bar)
    names = sorted(found)
    declared = {key: way for row in rows for key, way in reader.goals(row.id).items()}
    told = captions(names, {**declared, **(goals or {})})
    figures = [
        f"<figure><figcaption>{_text(told[name])}</figcaption>"
        f"{bars_svg(clean(name, limit=80), found[name])}</figure>"
        for name in names[:MOST_SCORES]
    ]
    if not figures:
        return ""
    left = len(names) - MOST_SCORES
    more = f'<p class="dim">and {left} more scores</p>' if left > 0 else ""
    return f'<h2>Scores of evaluations</h2><div class="charts">{"".join(figures)}</div>{more}'


def _curves(reader: Reader, row: RunRow) -> Iterator[tuple[str, Series]]:
    """Every series of a run except scores of a single checkpoint, which are bars."""
    with _own(reader, row) as own:
        for key, series in _series_of(own, row.id):
            if len(series.steps) > 1 or not key.startswith(PREFIX):
                yield key, series


@contextmanager
def _own(reader: Reader, row: RunRow) -> Iterator[Reader]:
    """The run's own store if it still exists, else the given one."""
    local = local_store(RunDir(Path(row.path))) if row.path and Path(row.path).is_dir() else None
    if local is not None and local.is_file():
        with Reader(local) as own:
            yield own
    else:
        yield reader


def _series_of(reader: Reader, run_id: str) -> Iterator[tuple[str, Series]]:
    for key in reader.keys(run_id):
        series = reader.series(run_id, key, max_points=POINTS)
        if series.steps:
            yield key, series


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()
) -> str:
    """An HTML table; cells are HTML already, and so are the heads of runs."""
    right = set(numbers)
    lines = [
        "<tr>"
        + "".join(
            f'<td class="n">{cell}</td>' if i in right else f"<td>{cell}</td>"
            for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    ]
    head = "".join(f"<th>{one}</th>" for one in heads)
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _text(value: object) -> str:
    return escape(clean(str(value), limit=_CHARS))


def _value(value: object) -> str:
    return "not set" if value is None else str(value)


def _shown(text: str) -> str:
    return "&#8212;" if text == UNKNOWN else text
