"""The cockpit in a browser: who is let in, what is served, what a page of another site can do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from albor_core.run.errors import AlborError, UsageError
from albor_tui.main import main
from albor_tui.web import (
    MAX_COCKPITS,
    MAX_COLUMNS,
    MAX_ROWS,
    MIN_TOKEN_CHARS,
    Doorkeeper,
    bounded,
    end_process,
    read_token,
)

pytest.importorskip("textual_serve")
TOKEN = "t" * MIN_TOKEN_CHARS


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def token_file(folder: Path, text: str = TOKEN, mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_text(text + "\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org"])
def test_beyond_loopback_there_is_no_server_without_a_token_file(host, capsys):
    assert main(["--web", "--host", host]) == 2
    assert "ssh -L" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "mode", "said"), [(TOKEN, 0o644, "others can read"), ("short", 0o600, "characters")]
)
def test_a_token_that_others_can_read_or_guess_is_refused(tmp_path, text, mode, said):
    with pytest.raises(UsageError, match=said):
        read_token(token_file(tmp_path, text, mode))


def test_a_token_file_behind_a_link_is_refused(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(token_file(tmp_path))
    with pytest.raises(UsageError):
        read_token(link)


@pytest.mark.parametrize(
    ("headers", "let_in"),
    [
        ({"Host": "127.0.0.1:8000"}, True),
        ({"Host": "localhost:9000"}, True),  # ssh -L 9000:localhost:8000
        ({"Host": "[::1]:8000"}, True),
        ({"Host": "evil.example:8000"}, False),
        ({"Host": ""}, False),
        ({"Host": "[::1"}, False),
        ({"Host": "localhost:8000", "Origin": "http://localhost:8000"}, True),
        ({"Host": "localhost:8000", "Origin": "http://evil.example"}, False),
        ({"Host": "localhost:8000", "Origin": "null"}, False),
        ({"Host": "localhost:8000", "Sec-Fetch-Site": "cross-site"}, False),
    ],
)
def test_only_our_own_name_and_our_own_page_are_let_in(headers, let_in):
    keeper = Doorkeeper(host="127.0.0.1", token="")
    assert (keeper.problem(headers) == "") is let_in


def test_without_a_token_everybody_here_is_known_and_with_one_nobody_is():
    assert Doorkeeper(host="127.0.0.1", token="").is_known("")
    assert not Doorkeeper(host="127.0.0.1", token=TOKEN).is_known("guess")


def test_a_token_of_one_use_opens_one_browser_and_the_next_is_told():
    told: list[str] = []
    keeper = Doorkeeper(host="127.0.0.1", token="", announce=told.append)
    keeper.announce()
    keeper.announce()
    assert len(told) == 1
    assert len(told[0]) >= 43
    assert not keeper.is_known("")
    first = asyncio.run(_login(keeper, told[0]))
    assert keeper.is_known(first)
    assert len(told) == 2
    assert told[1] != told[0]
    assert asyncio.run(_login(keeper, told[0])) == ""  # used
    assert keeper.is_known(first)
    assert keeper.is_known(asyncio.run(_login(keeper, told[1])))


async def _login(keeper: Doorkeeper, token: str) -> str:
    """The cookie that a token is exchanged for; "" for none."""

    class Form:
        content_length = 100

        async def post(self) -> dict[str, str]:
            return {"token": token}

    answer = await keeper.admit(Form())
    cookie = answer.cookies.get("albor-session")
    return "" if cookie is None else cookie.value


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ((120, 40), (120, 40)),
        ((99_999_999, 99_999_999), (MAX_COLUMNS, MAX_ROWS)),
        ((0, -5), (1, 1)),
        ((float("nan"), float("inf")), (1, MAX_ROWS)),
        (("80", None), (1, 1)),
    ],
)
def test_no_page_is_larger_than_a_screen(asked, given):
    assert bounded(*asked) == given


class Served:
    """`albor-tui --web` in a process of its own."""

    def __init__(self, home: Path, *options: str) -> None:
        self.port = free_port()
        argv = [sys.executable, "-m", "albor_tui.main", "--web", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*argv, *options],
            env={**os.environ, "ALBOR_HOME": str(home)},
            stderr=subprocess.STDOUT,
            stdout=subprocess.PIPE,
        )
        deadline = time.monotonic() + 30
        while not self._answers():
            assert self.process.poll() is None, self.process.stdout.read()
            assert time.monotonic() < deadline, "the server never answered"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def get(self, path: str = "/", data: bytes | None = None, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data=data, headers=headers
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def said(self, pattern: str) -> str:
        """The first group of a pattern in the next lines of its terminal."""
        for line in iter(self.process.stdout.readline, b""):
            if found := re.search(pattern, line.decode()):
                return found[1]
        raise AssertionError(f"the server ended without {pattern!r}")

    def everything_said(self) -> str:
        """What its terminal has, of all its life: it ends."""
        self.process.terminate()
        return self.process.stdout.read().decode()

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(word) for word in path.read_text().split()]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(15)
        self.process.stdout.close()


@pytest.fixture
def open_server(tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path / "home")
    yield server
    server.close()


@pytest.mark.slow
def test_a_browser_gets_the_page_and_another_site_does_not(open_server):
    code, page = open_server.get()
    assert code == 200
    assert f"ws://127.0.0.1:{open_server.port}/ws" in page
    assert open_server.get(Host="evil.example")[0] == 403
    assert open_server.get(Origin="http://evil.example")[0] == 403
    assert open_server.get("/ws")[0] == 403


@pytest.mark.slow
async def test_the_socket_serves_a_cockpit_that_can_only_look(open_server):
    import aiohttp

    url = f"http://127.0.0.1:{open_server.port}/ws?width=80&height=24"
    origin = f"http://127.0.0.1:{open_server.port}"
    seen = b""
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(url, headers={"Origin": "http://evil.example"})
        async with session.ws_connect(url, headers={"Origin": origin}) as ws:
            async with asyncio.timeout(30):
                while b"No runs here yet" not in seen:
                    message = await ws.receive()
                    if message.type is aiohttp.WSMsgType.BINARY:
                        seen += message.data
                await ws.send_str(json.dumps(["stdin", "n"]))  # a launch is refused at its key
                while b"--allow-control" not in re.sub(rb"\x1b\[[0-9;]*m", b"", seen):
                    message = await ws.receive()
                    if message.type is aiohttp.WSMsgType.BINARY:
                        seen += message.data
    assert b"root:" not in seen


@pytest.mark.slow
def test_with_a_token_nothing_is_served_before_it_was_given(tmp_path):
    server = Served(tmp_path / "home", "--token-file", str(token_file(tmp_path)))
    try:
        assert "password" in server.get()[1]  # redirected to the form
        assert server.get("/static/js/textual.js")[0] == 401
        assert server.get("/ws", Origin=f"http://127.0.0.1:{server.port}")[0] == 401
        assert server.get("/login", data=b"token=wrong")[0] == 401
        jar = urllib.request.HTTPCookieProcessor()
        opener = urllib.request.build_opener(jar)
        url = f"http://127.0.0.1:{server.port}/login"
        with opener.open(url, data=f"token={TOKEN}".encode(), timeout=10) as answer:
            assert "/ws" in answer.read().decode()
        cookie = next(iter(jar.cookiejar))
        assert TOKEN not in cookie.value
        assert cookie.has_nonstandard_attr("HttpOnly")
    finally:
        server.close()


@pytest.mark.slow
def test_whoever_may_act_gives_a_token_of_one_use_on_this_machine_too(tmp_path):
    server = Served(tmp_path / "home", "--allow-control")
    try:
        token = server.said(r"token for one browser: (\S+)")
        assert "password" in server.get()[1]  # redirected to the form
        assert server.get("/ws", Origin=f"http://127.0.0.1:{server.port}")[0] == 401
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        url = f"http://127.0.0.1:{server.port}/login"
        with opener.open(url, data=f"token={token}".encode(), timeout=10) as answer:
            assert "/ws" in answer.read().decode()
        assert server.get("/login", data=f"token={token}".encode())[0] == 401
        assert server.said(r"token for one browser: (\S+)") != token
    finally:
        server.close()


@pytest.mark.slow
async def test_a_client_cannot_make_a_cockpit_huge_nor_leave_one_behind(open_server):
    import aiohttp

    origin = f"http://127.0.0.1:{open_server.port}"
    url = f"{origin}/ws?width=99999999&height=99999999"
    async with aiohttp.ClientSession() as session:
        open_pages = []
        for _ in range(MAX_COCKPITS):
            open_pages.append(await session.ws_connect(url, headers={"Origin": origin}))
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(url, headers={"Origin": origin})
        assert refused.value.status == 503
        others = [asyncio.create_task(drained(page)) for page in open_pages[1:]]
        seen = b""
        await open_pages[0].send_str(json.dumps(["resize", {"width": 10**9, "height": 10**9}]))
        async with asyncio.timeout(60):
            while b"No runs here yet" not in seen:
                message = await open_pages[0].receive()
                seen += message.data if message.type is aiohttp.WSMsgType.BINARY else b""
        cockpits = open_server.children()
        assert len(cockpits) == MAX_COCKPITS
        sizes = [
            int(line.split()[1])
            for pid in cockpits
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith("VmRSS")
        ]
        assert max(sizes) < 400_000  # kB; a screen of 500 x 200 takes some
        open_server.process.kill()
        open_server.process.wait(15)
        await asyncio.gather(*others)
        async with asyncio.timeout(30):
            while any(is_there(pid) for pid in cockpits):
                await asyncio.sleep(0.1)


async def drained(page):
    """A page that is looked at: only who reads answers the server's pings."""
    async for _ in page:
        pass


@pytest.mark.slow
async def test_pages_that_open_and_vanish_leave_no_more_cockpits_than_are_counted(open_server):
    import aiohttp

    origin = f"http://127.0.0.1:{open_server.port}"
    async with aiohttp.ClientSession() as session:
        for _ in range(2 * MAX_COCKPITS):
            with contextlib.suppress(aiohttp.WSServerHandshakeError):
                page = await session.ws_connect(f"{origin}/ws", headers={"Origin": origin})
                page.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
            assert len(open_server.children()) <= MAX_COCKPITS
    async with asyncio.timeout(60):
        while open_server.children():
            await asyncio.sleep(0.05)
    assert "Traceback" not in open_server.everything_said()


async def test_a_cockpit_that_is_ended_is_gone_whether_it_listens_or_not():
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"
    for program, code in (("print(flush=True)", -signal.SIGTERM), (deaf, -signal.SIGKILL)):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-c", f"{program}; import time; time.sleep(60)",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        await process.stdout.readline()
        await end_process(process)
        assert process.returncode == code
        await end_process(process)


@pytest.mark.slow
async def test_what_is_no_request_and_no_message_leaves_no_traceback_where_it_is_served(
    open_server,
):
    import aiohttp

    for nonsense in (b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"\0" * 100, b"GET / HTTP/9\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", open_server.port), 10) as raw:
            raw.sendall(nonsense + b"\r\n\r\n")
            raw.shutdown(socket.SHUT_WR)
            raw.settimeout(10)
            raw.recv(1000)
    origin = f"http://127.0.0.1:{open_server.port}"
    async with aiohttp.ClientSession() as session:
        for nonsense in ("{", "[]", "7", '["stdin"]', '["resize", 3]', '["stdin", 3]'):
            page = await session.ws_connect(f"{origin}/ws", headers={"Origin": origin})
            await page.send_str(nonsense)
            async with asyncio.timeout(30):
                async for _ in page:
                    pass
    assert "Traceback" not in open_server.everything_said()


def is_there(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_a_read_only_cockpit_refuses_every_deed(tmp_path):
    import fake_feed

    from albor_tui.model.readonly import ReadOnlyDesk, ReadOnlyLaunchpad, ReadOnlySource

    view = fake_feed.training()
    reports = list(ReadOnlySource(None).command(view, "stop"))
    assert [report.status for report in reports] == ["refused"]
    desk, pad = ReadOnlyDesk(None), ReadOnlyLaunchpad()
    deeds = (
        lambda: ReadOnlySource(None).acknowledge(view, "a"),
        lambda: desk.annotate("r", "tag", "x"),
        lambda: desk.resume("r"),
        lambda: desk.export(["r"], tmp_path / "x"),
        lambda: desk.report(["r"], tmp_path / "x"),
        lambda: pad.check(tmp_path / "x.yaml", ()),
        lambda: pad.start(tmp_path / "x.yaml", (), ""),
    )
    for deed in deeds:
        with pytest.raises(AlborError, match="read-only"):
            deed()
