"""The process that starts the judge and the program in namespaces, and removes both afterwards.

`python -c "... main()" SETTINGS`: the job comes on stdin, what is known goes to stdout as lines of
JSON (the judge's process, the facts, the verdict), the program's own output to stderr.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from dataclasses import asdict
from typing import Any, NoReturn

from albor_core.eval.code.sandbox import kernel
from albor_core.eval.code.sandbox.confinement import (
    Facts,
    ProgramLimits,
    build_root,
    drop_root,
    enter_namespaces,
    facts_of,
    limit_resources,
    lock_in,
    offered,
)
from albor_core.eval.code.sandbox.judge import Judge
from albor_core.eval.code.sandbox.program import Program, leave_nothing_open
from albor_core.eval.code.sandbox.wire import FrameChannel

_SPARE_S = 30.0  # past the program's own time: who watches from outside is gone


def main() -> None:
    """Run one program from the job to the verdict."""
    settings = json.loads(sys.argv[1])
    kernel.die_with_parent(signal.SIGTERM)
    if os.getppid() != settings["parent"]:
        return
    sys.path.remove(settings["path"])
    limits, without = ProgramLimits(**settings["limits"]), frozenset(settings["without"])
    packages = settings["packages"]
    if packages:
        sys.path.append(packages)
    os.umask(0o022)
    kernel.adopt_orphans()
    has = offered(without)
    has_namespaces = enter_namespaces(without)
    has_root = has_namespaces and build_root(limits, packages)
    folder = "/tmp" if has_root else settings["folder"]  # noqa: S108  its own
    go, gone = os.pipe()
    judge = os.fork()
    if judge == 0:
        kernel.die_with_parent()
        os.close(gone)
        os.read(go, 1)  # until it is known outside which process to end
        os.close(go)
        facts = facts_of(has, has_namespaces=has_namespaces, has_root=has_root)
        _judge_and_program(limits, facts, folder, packages, without)
    _say(1, {"judge": judge})
    os.close(gone)
    os.close(go)
    for fd in (0, 1, 2):
        os.close(fd)
    for number in (signal.SIGALRM, signal.SIGTERM):  # who watches is late, or is gone
        signal.signal(number, lambda *_: os.kill(judge, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, limits.wall_s + _SPARE_S)
    _wait_for_all(judge, has_namespaces=has_namespaces)


def _judge_and_program(
    limits: ProgramLimits, facts: Facts, folder: str, packages: str, without: frozenset[str]
) -> NoReturn:
    """Fork: this process becomes the judge, its child the program, before any text of the tests is
    in memory."""
    ours, theirs = socket.socketpair()
    program = os.fork()
    if program == 0:
        ours.close()
        _be_the_program(theirs.fileno(), limits, facts, folder, packages, without)
    theirs.close()
    judged: dict[str, Any] = {}
    try:
        results = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what tests print
        os.dup2(1, 2)
        os.set_inheritable(results, False)
        user, keep = drop_root("", facts, packages, without)
        kernel.die_with_parent()  # said again: a change of user forgets it
        kernel.hide_memory()
        kernel.drop_capabilities(keep)
        limit_resources(
            {
                resource.RLIMIT_AS: limits.memory_bytes,
                resource.RLIMIT_CPU: limits.cpu_s,
                resource.RLIMIT_FSIZE: 0,  # tests write no files
            }
        )
        _say(results, {"facts": asdict(facts) | {"user": user}})
        channel = FrameChannel(ours.fileno())
        if broken := channel.receive():  # the program's first word, before it is the program's
            judged = {"unable": broken}
        else:
            job = json.loads(_all_of(0))
            words = {name: job[name] for name in ("program", "helpers", "tests", "names")}
            outcome, detail = Judge(channel).verdict(**words)
            judged = {"outcome": outcome, "detail": detail, "word": job["word"]}
    except BaseException as error:
        judged = {"outcome": "failed", "detail": f"{type(error).__name__}: {error}"[:300]}
    _say(results, judged)
    os._exit(0)


def _be_the_program(
    channel: int,
    limits: ProgramLimits,
    facts: Facts,
    folder: str,
    packages: str,
    without: frozenset[str],
) -> NoReturn:
    try:
        os.setsid()
        leave_nothing_open(channel, output=2)
        ours = "" if folder == "/tmp" else folder  # noqa: S108
        _, keep = drop_root(ours, facts, packages, without)
        kernel.die_with_parent()
        said = FrameChannel(channel)
        try:
            lock_in(limits, facts, folder, packages, keep, without)
        except Exception as error:
            said.send(f"{type(error).__name__}: {error}")
        else:
            said.send("")
            Program(said).serve()
    finally:
        os._exit(0)


def _wait_for_all(judge: int, *, has_namespaces: bool) -> None:
    """Wait until all processes are gone: a namespace ends them with the judge, otherwise each is
    searched."""
    while True:
        try:
            pid, _ = os.wait()
        except ChildProcessError:
            return
        if pid == judge:
            break
    while not has_namespaces and (left := kernel.descendants(os.getpid())):
        for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none starts another
            for pid in left:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            continue


def _all_of(fd: int) -> bytes:
    with open(fd, "rb", closefd=False) as file:
        return file.read()


def _say(fd: int, what: dict[str, Any]) -> None:
    os.write(fd, json.dumps(what).encode() + b"\n")
