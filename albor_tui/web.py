"""The cockpit in a browser, through textual-serve: on this machine only unless a secret is given.

A page of any site may send a browser here, so every request must name this server in its Host
header (DNS rebinding) and, where the browser says where it comes from, that must be this server as
well. Beyond loopback a token is asked for once and exchanged for a cookie: it is never part of a
URL, of an argv or of a log line. What is served can look and do nothing without --allow-control.
With that, also on loopback, which every account of the machine reaches, a token is asked for that
opens one browser: it is said on the terminal that serves, and the next one once it was used.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import secrets
import shlex
import stat
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from albor_core.run.errors import AlborError, UsageError
from albor_core.run.program.argv import module_argv
from albor_core.run.program.parent_death import die_with_parent

if TYPE_CHECKING:
    from aiohttp import web

LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "albor-session"
MIN_TOKEN_CHARS = 43  # 256 bits in base64
_MAX_FORM_BYTES = 4096
MAX_COLUMNS, MAX_ROWS = 500, 200  # of a page: each cell costs the cockpit memory
MAX_COCKPITS = 8  # at once
_STOP_S = 5.0
_TERM_S = 1.0
_MALFORMED = (  # what textual-serve raises of a message that is not its own
    ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RecursionError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
_PARENT = "ALBOR_WEB_SERVER"  # main.py looks for it
Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]

_LOGIN = """<!doctype html><meta charset="utf-8"><title>albor</title>
<style>body{background:#12141c;color:#d7d9e0;font:16px monospace;padding:4em}
input{font:inherit;background:#1f2330;color:inherit;border:1px solid #343a4b;padding:.4em}</style>
<form method="post" action="/login"><p>The token of this cockpit</p>
<input type="password" name="token" autofocus autocomplete="off">
<input type="submit" value="enter">
</form>"""
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "frame-ancestors 'none'",
}


def serve(
    *,
    host: str,
    port: int,
    token_file: Path | None,
    allow_control: bool,
    arguments: Sequence[str] = (),
) -> int:
    """Serve until Ctrl-C. `arguments` go to each cockpit.

    Raises UsageError for a host beyond loopback without a token file, and for a token file that
    others could read or that is too short; AlborError where textual-serve is not installed.
    """
    token = _token(host, token_file)
    try:
        from textual_serve import server as module
        from textual_serve.app_service import AppService
    except ImportError as error:
        raise AlborError("--web needs textual-serve", hint="pip install 'albor[web]'") from error

    guard = Doorkeeper(host=host, token=token, announce=_announce if allow_control else None)
    control = [] if allow_control else ["--read-only"]

    class BoundedService(AppService):
        """A cockpit whose size is a screen's and that does not outlive us."""

        def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
            width, height = bounded(width, height)
            found: dict[str, str] = super()._build_environment(width, height)
            return {**found, _PARENT: str(os.getpid())}

        async def set_terminal_size(self, width: Any, height: Any) -> None:
            await super().set_terminal_size(*bounded(width, height))

        async def stop(self) -> None:
            # a page that is gone can be told nothing, and its cockpit may not have begun to listen
            try:
                with suppress(TimeoutError, ConnectionError, RuntimeError):
                    await asyncio.wait_for(super().stop(), _STOP_S)
            finally:
                self._task = None
                await end_process(self._process)

    class GuardedServer(module.Server):
        """textual-serve with our doorkeeper before every route."""

        cockpits = 0

        async def _make_app(self) -> web.Application:

            app: web.Application = await super()._make_app()
            app.middlewares.append(guard.middleware())
            app.router.add_route("GET", "/login", guard.ask)
            app.router.add_route("POST", "/login", guard.admit)
            return app

        async def handle_index(self, request: web.Request) -> web.StreamResponse:
            # through `ssh -L 9000:localhost:8000` we are known by another name
            self.public_url = f"http://{request.host}"
            return await super().handle_index(request)

        async def handle_websocket(  # type: ignore[override]
            self, request: web.Request
        ) -> web.StreamResponse:
            from aiohttp import web

            if self.cockpits >= MAX_COCKPITS:
                text = f"{MAX_COCKPITS} pages are open already; close one\n"
                return web.Response(status=503, text=text, headers=_HEADERS)
            self.cockpits += 1
            try:
                return await super().handle_websocket(request)
            finally:
                self.cockpits -= 1

        async def on_startup(self, app: web.Application) -> None:
            how = "can act on runs" if allow_control else "read-only"
            print(f"albor-tui: {self.public_url} ({how}); Ctrl-C ends it", file=sys.stderr)  # noqa: T201
            guard.announce()

        async def _process_messages(self, websocket: Any, app_service: Any) -> None:
            with suppress(*_MALFORMED):  # what a page sends may be anything: its cockpit ends
                await super()._process_messages(websocket, app_service)

        def initialize_logging(self) -> None:
            """No access log: it would be one more place for what is private. A malformed request is
            answered and not logged.
            """
            logging.getLogger("aiohttp.server").addFilter(is_own_fault)

    module.AppService = BoundedService  # type: ignore[attr-defined]  # it makes one for each page
    # exec: the cockpit is our child, not that of the shell which textual-serve starts it by
    command = "exec " + shlex.join(module_argv("albor_tui.main", *control, *arguments))
    shown = f"[{host}]" if ":" in host else host
    GuardedServer(command, host, port, "albor", f"http://{shown}:{port}").serve()
    return 0


async def end_process(process: asyncio.subprocess.Process | None) -> None:
    """End a cockpit, by force where it does not listen; it is gone when this returns."""
    if process is None or process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _TERM_S)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    await process.wait()


def is_own_fault(record: logging.LogRecord) -> bool:
    """Whether a record of aiohttp's log is of more than a malformed request or a lost client."""
    from aiohttp.http_exceptions import HttpProcessingError

    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | ConnectionError)


def bounded(width: Any, height: Any) -> tuple[int, int]:
    """A page's size in cells, as far as a screen goes; of nonsense the smallest."""
    sizes = []
    for value, most in ((width, MAX_COLUMNS), (height, MAX_ROWS)):
        is_number = isinstance(value, int | float) and value == value
        sizes.append(int(min(max(value, 1), most)) if is_number else 1)
    return sizes[0], sizes[1]


def end_with_server() -> None:
    """In a cockpit that a web server started, exit when the server ends, however it ends."""
    if (server := os.environ.pop(_PARENT, "")).isdigit():
        die_with_parent(int(server))


def _announce(token: str) -> None:
    print(f"albor-tui: token for one browser: {token}", file=sys.stderr, flush=True)  # noqa: T201


def _token(host: str, token_file: Path | None) -> str:
    """The secret to ask for; "" on loopback without one."""
    if token_file is None:
        if host not in LOOPBACK:
            raise UsageError(
                f"--host {host}: whoever reaches this machine could open the cockpit",
                hint="ssh -L 8000:localhost:8000 HOST, or give --token-file",
            )
        return ""
    return read_token(token_file)


def read_token(path: Path) -> str:
    """The secret in a file that only its owner can read. Raises UsageError."""
    make = f"(umask 077; openssl rand -base64 32 > {shlex.quote(str(path))})"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint=make) from error
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise UsageError(f"{path}: is not a file of yours", hint=make)
        if status.st_mode & 0o077:
            raise UsageError(f"{path}: others can read it", hint=f"chmod 600 {path}")
        token = file.read(4096).decode("ascii", "replace").strip()
    if len(token) < MIN_TOKEN_CHARS:
        raise UsageError(f"{path}: a token has {MIN_TOKEN_CHARS} characters or more", hint=make)
    return token


class Doorkeeper:
    """Who may come in. Sessions live as long as the server.

    With `announce` a token opens one browser: that of the caller first, if there is one, then new
    ones, each told by `announce`.
    """

    def __init__(
        self, *, host: str, token: str, announce: Callable[[str], None] | None = None
    ) -> None:
        self._tell = announce
        self._is_told = bool(token)  # whoever gave it knows it
        self._token = token or (_new_token() if announce is not None else "")
        self._any_name = host in ("0.0.0.0", "::")  # noqa: S104  the token guards it then
        self._names = {host.lower(), *LOOPBACK}
        self._sessions: set[bytes] = set()

    def announce(self) -> None:
        """Tell the token that opens the next browser, unless that is known."""
        if self._tell is not None and not self._is_told:
            self._is_told = True
            self._tell(self._token)

    def problem(self, headers: Mapping[str, str]) -> str:
        """Why a request is not for us or not from our own page; "" if it is."""
        host = headers.get("Host", "")
        if not self._any_name and _name_of(host) not in self._names:
            return "this server has another name"
        origin = headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return "a page of another site asked"
        if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "a page of another site asked"
        return ""

    def is_known(self, cookie: str) -> bool:
        """Whether a cookie is of a session that gave the token."""
        return not self._token or _digest(cookie) in self._sessions

    def middleware(self) -> Any:
        """Before every route: name, origin, session."""
        from aiohttp import web

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            if why := self.problem(request.headers):
                return web.Response(status=403, text=f"{why}\n", headers=_HEADERS)
            if request.path == "/ws" and "Origin" not in request.headers:
                return web.Response(status=403, text="not a browser\n", headers=_HEADERS)
            if request.path != "/login" and not self.is_known(request.cookies.get(COOKIE, "")):
                if request.path == "/":
                    raise web.HTTPSeeOther("/login", headers=_HEADERS)
                return web.Response(status=401, text="no session\n", headers=_HEADERS)
            response = await handler(request)
            if not response.prepared:
                response.headers.update(_HEADERS)
            return response

        return check

    async def ask(self, request: web.Request) -> web.StreamResponse:
        """The form for the token."""
        from aiohttp import web

        return web.Response(text=_LOGIN, content_type="text/html")

    async def admit(self, request: web.Request) -> web.StreamResponse:
        """A cookie for the right token; compared in constant time."""
        from aiohttp import web

        if (request.content_length or 0) > _MAX_FORM_BYTES:
            return web.Response(status=413, text="too long\n")
        form = await request.post()
        given = str(form.get("token", ""))
        if not hmac.compare_digest(_digest(given), _digest(self._token)):
            return web.Response(status=401, text="wrong token\n")
        session = _new_token()
        self._sessions.add(_digest(session))
        if self._tell is not None:
            self._token, self._is_told = _new_token(), False
            self.announce()
        answer = web.HTTPSeeOther("/")
        answer.set_cookie(COOKIE, session, httponly=True, samesite="Strict")
        return answer


def _new_token() -> str:
    return secrets.token_urlsafe(32)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _name_of(host: str) -> str:
    """The name in a Host header, without port and brackets; "" for nonsense."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
