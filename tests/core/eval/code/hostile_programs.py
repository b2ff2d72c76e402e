"""Programs that do harm, each bounded by itself: none could hurt a machine that did not hold it.

`f` solves the task (`f(1) == 2`) if the harm was done, and only then.
"""

from __future__ import annotations

SOLVES_IF_DONE = """
def f(x):
    return x + 1 if done else None
"""

FORK_BOMB = """
import os, signal, time
for _ in range(128):
    if not os.fork():
        signal.alarm(20)
        time.sleep(20)  # stays a process until the sandbox ends it, or the alarm
        os._exit(0)
time.sleep(2)  # gives the sandbox time to count the children before this one is done
done = True
"""
OUTSIDE = """
done = False
for path in {paths}:
    for mode in ("a", "r"):
        try:
            open(path, mode).close()
            done = True
        except OSError:
            pass
"""
NETWORK = """
import socket
done = False
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    try:
        one = socket.socket(socket.AF_INET, kind)
        one.settimeout(1)
        one.connect(("127.0.0.1", {port}))
        one.send(b"stolen")
        done = True
    except OSError:
        pass
"""
MEMORY = """
held = []
for _ in range(48):  # 3 GiB
    held.append(bytearray(b"x") * (64 << 20))
done = True
"""
MEMORY_OF_MANY = """
import os, signal, time
signal.alarm(60)
for _ in range(8):  # 960 MiB
    if os.fork() == 0:
        signal.alarm(60)
        held = bytearray(b"x") * (120 << 20)
        time.sleep(50)  # holds its memory until the sandbox ends it, or the alarm
        os._exit(0)
time.sleep(30)  # gives the sandbox time to add up the children's memory
done = True
"""
OUTPUT = """
import sys
for _ in range(64):
    sys.stdout.write("x" * (1 << 20))
done = True
"""
SIGNALS = """
import os, signal, threading
done = False
for pid in (os.getppid(), {driver}):
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except OSError:
            pass
"""
INTERPRETER = """
import os, sys
done = False
real = os.path.realpath(sys.executable)
for path in (sys.executable, real, os.__file__, os.path.dirname(os.__file__) + "/albor-was-here"):
    try:
        open(path, "ab").close()
        done = True
    except OSError:
        pass
    try:
        os.chmod(path, os.stat(path).st_mode)
        done = True
    except OSError:
        pass
"""
COPIES = """
import pathlib, shutil, tempfile
with tempfile.TemporaryDirectory() as folder:
    one = pathlib.Path(folder, "one")
    one.touch()
    one.touch()
    one.write_text("1")
    shutil.copy(one, folder + "/two")
    shutil.copy2(one, folder + "/three")
    shutil.copytree(folder, folder + "-all")
    done = len(list(pathlib.Path(folder + "-all").iterdir())) == 3
"""
EXITS = {
    "sys.exit": "import sys\nsys.exit(0)",
    "os._exit": "import os\nos._exit(0)",
    "SystemExit": "raise SystemExit(0)",
    "an exit when called": "import os\ndef f(x):\n    os._exit(0)",
    "its own death": "import os\nos.kill(os.getpid(), 9)",
    "a deep recursion": "import sys\nsys.setrecursionlimit(10**8)\ndef f(x):\n    return f(x)",
}
PATCHES = """
import builtins, json, os, sys
class Anything(Exception):
    def __init__(self, *a): pass
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
    def __hash__(self): return 0
    def __getattr__(self, name): return Anything()
    def __call__(self, *a, **k): return Anything()
class Two(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
for fd in range(1, 40):
    if fd > 2 and {is_quiet}:
        continue
    for word in ("passed", "ok", '{{"outcome": "passed", "word": ""}}', "0"):
        try:
            os.write(fd, word.encode() + b"\\n")
        except OSError:
            pass
builtins.AssertionError = Anything
builtins.isinstance = lambda *a: True
builtins.all = builtins.any = lambda *a: True
json.dumps = lambda *a, **k: '["value", 2]'
sys.settrace(lambda *a: None)
def f(x):
    return {answer}
"""
SLEEP = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
end = time.monotonic() + 30
while time.monotonic() < end:
    time.sleep(1)  # is ended by nothing but its time: what is tried here
done = True
"""
DAEMON = """
import os, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, 64)
        os.execv("/usr/bin/sleep", ["sleep", "{seconds}"])  # outlives the verdict unless ended
    os._exit(0)
done = False
"""
SECRETS = """
import gc, glob, os, re, sys
def everything():
    yield repr(dict(os.environ))
    yield repr(sys.argv)
    frame = sys._getframe()
    while frame is not None:
        yield repr(frame.f_code.co_consts)
        yield repr(list(frame.f_locals.values()))
        frame = frame.f_back
    for one in gc.get_objects():
        if type(one) in (dict, list, tuple):
            yield repr(one)[:20000]
    for name in ("environ", "cmdline", "fd/0", "fd/3", "mem"):
        for path in glob.glob(f"/proc/*/{name}"):
            try:
                with open(path, "rb") as file:
                    yield file.read(1 << 16).decode(errors="replace")
            except OSError:
                pass
    for place in (".", "/tmp", os.path.dirname(__file__) if "__file__" in globals() else "."):
        for path in glob.glob(place + "/**", recursive=True):
            try:
                with open(path, "rb") as file:
                    yield file.read(1 << 16).decode(errors="replace")
            except OSError:
                pass
def f(x):
    secret = re.compile("(?:sword|cat)" "fish-[0-9a-f]{16}")
    found = [one for text in everything() for one in secret.findall(text)]
    print(found)
    return next((one for one in found if one.startswith("s")), None)
"""
DISK = """
done = False
for number in range(25):  # 200 MiB
    with open(f"filler-{number}", "wb") as file:
        for _ in range(8):
            file.write(bytes(1 << 20))
import time
time.sleep(30)  # gives the sandbox time to add up the files
done = True
"""
TRACE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
done = False
for pid in (os.getppid(), {driver}):
    if libc.ptrace(16, pid, 0, 0) == 0:  # attach
        done = True
    try:
        with open(f"/proc/{{pid}}/mem", "r+b"):
            done = True
    except OSError:
        pass
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    remote = (ctypes.c_void_p * 2)(id(libc), 8)
    if libc.process_vm_readv(pid, vector, 1, remote, 1, 0) > 0:
        done = True
"""
