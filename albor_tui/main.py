"""The console script `albor-tui`.

Arguments are parsed before Textual is imported, so that `--json` and `--once` start like any small
program: without a terminal, for scripts and agents.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from albor_core.run.errors import AlborError, NotFoundError, UsageError
from albor_tui.model.run_tabs import TABS

if TYPE_CHECKING:
    from albor_tui.model.views import ViewKeeper

REFRESH_S = 1.0
THEMES = ("auto", "dark", "light", "contrast", "colour-blind", "ansi")
BROKEN_PIPE = 141  # 128 + SIGPIPE


def run() -> None:
    """Entry point; exits with the codes of the command line reference."""
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Run with these arguments; returns the exit code."""
    options = parsed(argv)
    if "ALBOR_WEB_SERVER" in os.environ:
        from albor_tui.web import end_with_server

        end_with_server()
    is_document = options.json or options.once
    if sys.stdout is None and is_document:  # closed before we began: not wanted
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  for the life of the process
    try:
        if is_document:
            if options.view is not None:
                hint = "albor runs ls --view NAME --json"
                raise UsageError("--view: --json and --once show all runs", hint=hint)
            return _documents(options.target, once=options.once)
        if options.web:
            return _web(options)
        if (problem := _no_screen(os.environ.get("TERM", ""))) is not None:
            print(problem, file=sys.stderr)  # noqa: T201  a terminal program talks to its terminal
            return 2
        return _cockpit(options)
    except AlborError as error:
        _print_error(error, as_json=is_document and not isinstance(error, _StdoutError))
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments as given or by default. Raises SystemExit where argparse refuses them."""
    parser = argparse.ArgumentParser(
        prog="albor-tui", description="The cockpit: every run on this machine, live."
    )
    parser.add_argument(
        "target",
        nargs="?",
        metavar="RUN|DIR|DB",
        help="a run (id, name or directory), an output_dir or an experiments.db; "
        "without it, every run of this home",
    )
    parser.add_argument("--json", action="store_true", help="stream documents, one per line")
    parser.add_argument("--once", action="store_true", help="print one document and exit")
    parser.add_argument(
        "--tab",
        choices=[tab.key for tab in TABS],
        default="",
        help="open the run on this tab",
    )
    parser.add_argument(
        "--view", metavar="NAME", help="show a view that was named with V: its filter, sort, ..."
    )
    parser.add_argument(
        "--theme", choices=THEMES, default="auto", help="colours (key t); auto fits the terminal"
    )
    parser.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")
    parser.add_argument("--reduced-motion", action="store_true", help="nothing moves by itself")
    parser.add_argument("--read-only", action="store_true", help="disable every action")
    web = parser.add_argument_group("in a browser")
    web.add_argument("--web", action="store_true", help="serve the cockpit, on this machine only")
    web.add_argument("--host", default="127.0.0.1", help="beyond loopback: with --token-file only")
    web.add_argument("--port", type=int, default=8000)
    web.add_argument(
        "--token-file", type=Path, metavar="FILE", help="a secret to ask for, mode 600"
    )
    web.add_argument("--allow-control", action="store_true", help="let the browser act on runs")
    return parser.parse_args(argv)


def _web(options: argparse.Namespace) -> int:
    from albor_tui.web import serve

    _resolve(options.target)  # a wrong name is said here and not in a browser
    views = open_views(options, is_read_only=True)  # each cockpit has its own
    theme = views.current.theme if views.current.theme in THEMES else "dark"
    arguments = ["--theme", theme if options.theme == "auto" else options.theme]
    arguments += ["--view", options.view] if options.view else []
    arguments += ["--tab", options.tab] if options.tab else []
    arguments += ["--ascii"] if options.ascii else []
    arguments += ["--", options.target] if options.target else []
    return serve(
        host=options.host,
        port=options.port,
        token_file=options.token_file,
        allow_control=options.allow_control,
        arguments=arguments,
    )


def _no_screen(term: str) -> str | None:
    """Why there can be no cockpit here, with what works instead; None if there can."""
    reason = ""
    if "TEXTUAL_DRIVER" in os.environ:  # textual-serve: a browser draws, over pipes
        return None
    streams = (sys.stdin, sys.stdout, sys.stderr)  # None: closed before we began
    if not all(stream is not None and stream.isatty() for stream in streams):
        reason = "standard input, output and error must be a terminal"  # Textual draws on stderr
    elif term in ("", "dumb", "unknown"):
        reason = f"TERM={term or 'unset'} cannot draw a screen"
    if not reason:
        return None
    return f"albor-tui: {reason}. Use: albor runs ls, albor monitor, or albor-tui --once"


def _print_error(error: AlborError, *, as_json: bool) -> None:
    if as_json:
        body = {"code": error.code, "message": error.message, "hint": error.hint, "problems": []}
        with suppress(_StdoutError, BrokenPipeError):  # nowhere to put it: say it in words
            _print({"schema": "albor.error/1", "error": body}, sys.stdout)
            return
    hint = f"\n{error.hint}" if error.hint else ""
    print(f"albor-tui: {error.message}{hint}", file=sys.stderr)  # noqa: T201


def _documents(target: str | None, *, once: bool) -> int:
    """Documents of one run or of all, now or every REFRESH_S until the reader leaves."""
    from albor_core.feed.run.detail import RunFeed
    from albor_core.feed.runs.watch import RunsFeed
    from albor_core.feed.snapshot import runs_document, snapshot

    run, place = _resolve(target)
    feed = RunsFeed(place) if run is None else RunFeed(run)
    try:
        while True:
            if isinstance(feed, RunsFeed):
                document: Mapping[str, Any] = runs_document(feed.complete())
            else:
                document = snapshot(feed.run, feed=feed)
            _print(document, sys.stdout)
            if once:
                return 1 if document.get("problem") else 0
            time.sleep(REFRESH_S)
    except BrokenPipeError:
        return BROKEN_PIPE
    finally:
        feed.close()


class _StdoutError(AlborError):
    """Whatever stdout is cannot be written: the error is told in words, wherever it came from."""


def _print(document: Mapping[str, Any], stream: TextIO) -> None:
    """Raise BrokenPipeError, _StdoutError."""
    try:
        stream.write(json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n")
        stream.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # flushed at exit
        if isinstance(error, BrokenPipeError):
            raise
        what = f"cannot write to stdout: {error.strerror}"
        raise _StdoutError(what, hint="free some space, run it again") from error


def _resolve(target: str | None) -> tuple[Any, Path | None]:
    """A run, or a place that holds runs (None: this home). Raises NotFoundError."""
    from albor_core.run.home.runs import runs_in
    from albor_core.store.query.resolve import find_run

    if target is None:
        return None, None
    path = Path(target).expanduser()
    if (path / "run.json").is_file():
        return find_run(target), None
    if path.is_file() or (path.is_dir() and ((path / "runs").is_dir() or runs_in(path))):
        return None, path
    if (path / "journal.jsonl").is_file():
        raise NotFoundError(
            f"{target}: a run whose run.json is missing",
            hint="put it back from a copy; albor runs ls tells what the store remembers",
        )
    if path.is_dir():
        raise NotFoundError(f"{target}: no runs in this folder", hint="albor runs ls")
    return find_run(target), None


def open_views(options: argparse.Namespace, *, is_read_only: bool = False) -> ViewKeeper:
    """The views of this home, on the last one, or on that which was asked for. Raises
    NotFoundError, ConfigError.
    """
    from albor_core.feed.workspace.views import ViewsFile
    from albor_tui.model.views import ViewKeeper

    file = ViewsFile()
    views = ViewKeeper(file, is_read_only=is_read_only or options.read_only)
    if options.view is not None:
        file.read().view(options.view, file.path)  # a damaged file stays where it is
    views.load(with_filter=options.target is None)
    if options.view is not None:
        views.open(options.view)
    return views


def _cockpit(options: argparse.Namespace) -> int:
    gc.disable()  # 40,000 objects of modules and styles, all to stay; the app enables it again
    run, place = _resolve(options.target)
    from albor_core.feed.view.run_view import RunView
    from albor_tui.app import AlborApp
    from albor_tui.look import glyphs, themes
    from albor_tui.model.desk import LiveDesk
    from albor_tui.model.launchpad import LiveLaunchpad
    from albor_tui.model.source import LiveSource
    from albor_tui.terminal.hangup import watch_terminal

    glyphs.use(glyphs.ASCII if options.ascii else glyphs.fitting())
    first = None if run is None else RunView(id=run.id, path=str(run.path))
    source, desk, launchpad = LiveSource(place), LiveDesk(place), LiveLaunchpad()
    if options.read_only:
        from albor_tui.model.readonly import ReadOnlyDesk, ReadOnlyLaunchpad, ReadOnlySource

        source, desk, launchpad = ReadOnlySource(place), ReadOnlyDesk(place), ReadOnlyLaunchpad()
    views, theme = open_views(options), options.theme
    if theme == "auto":
        theme, last = themes.fitting(), views.current.theme
        theme = last if last in themes.NAMES and theme != "ansi" else theme
    app = AlborApp(
        source,
        run=first,
        tab=options.tab,
        theme=theme,
        desk=desk,
        launchpad=launchpad,
        views=views,
        read_only=options.read_only,
    )
    if options.view is not None:  # what was asked for is not covered by what needs a person
        app.lookout.somebody_acted()
    if options.reduced_motion or os.environ.get("ALBOR_REDUCED_MOTION"):
        app.animation_level = "none"
    watch_terminal(lambda code: app.call_from_thread(app.exit, return_code=code))
    app.run()
    return app.return_code or 0


if __name__ == "__main__":
    run()
