"""Pictures, sound, histograms, tables and texts of a loop: kept whole, once, or refused by name."""

from __future__ import annotations

import collections
import io
import itertools
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import wave
import zlib
from pathlib import Path

import pytest

from albor_core import track
from albor_core.run.files.media_file import hash_of, kept
from albor_core.run.journal import read_journal
from albor_core.run.rundir import RunDir
from albor_core.store.index.catch_up import drain_index
from albor_core.store.index.indexer import index_now
from albor_core.store.query.media import media as media_rows
from albor_core.store.query.reader import Reader
from albor_core.track import media, media_writer

ROOT = Path(__file__).resolve().parents[3]
numpy = pytest.importorskip("numpy")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setattr("albor_core.guard.process.index_process.IndexProcess.tend", lambda self: 0)


@pytest.fixture
def run():
    with track.start("media") as made:
        made.log({"loss": 1.0}, step=3)
        yield made


def rows(run):
    media.flush(run)
    index_now(run.dir)
    return {row.key: row for row in media_rows(run.dir)}


def pixels_of(png):
    """The rows of a PNG of ours, by nothing but the standard library."""
    width, height, _, colour = struct.unpack_from(">IIBB", png, 16)
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    at = png.index(b"IDAT")
    size = int.from_bytes(png[at - 4 : at], "big")
    body = zlib.decompress(png[at + 4 : at + 4 + size])
    lines = numpy.frombuffer(body, numpy.uint8).reshape(height, 1 + width * channels)
    assert (lines[:, 0] == 2).all()  # each row as what it adds to the one above
    whole = numpy.cumsum(lines[:, 1:], axis=0, dtype=numpy.uint8)
    return whole.reshape(height, width, channels)


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 2), (5, 7, 3), (5, 7, 4), (1, 1)])
def test_an_array_becomes_a_picture_with_the_same_pixels(run, shape):
    pixels = numpy.random.default_rng(1).integers(0, 256, shape, dtype=numpy.uint8)
    run.image("x", pixels, step=9, caption="a picture")
    row = rows(run)["x"]
    assert (row.step, row.caption, row.format) == (9, "a picture", "png")
    assert (row.meta["height"], row.meta["width"]) == shape[:2]
    found = pixels_of(row.path.read_bytes())
    assert (found == pixels.reshape(found.shape)).all()


def test_what_the_program_does_with_an_array_later_changes_no_picture(run):
    pixels = numpy.full((3, 3), 7, numpy.uint8)
    run.image("x", pixels)
    pixels[:] = 0
    assert (pixels_of(rows(run)["x"].path.read_bytes()) == 7).all()


def test_floats_truths_and_channels_first_are_shown_as_they_are_meant(run):
    run.image("floats", numpy.array([[0.0, 0.5, 1.0]]))
    run.image("wide", numpy.array([[0.0, 128.0, 255.0]]))
    run.image("truths", numpy.array([[True, False]]))
    run.image("integers", numpy.array([[0, 300 - 45]]))
    run.image("first", numpy.zeros((3, 5, 6)))
    found = rows(run)
    assert pixels_of(found["floats"].path.read_bytes()).ravel().tolist() == [0, 128, 255]
    assert pixels_of(found["wide"].path.read_bytes()).ravel().tolist() == [0, 128, 255]
    assert pixels_of(found["truths"].path.read_bytes()).ravel().tolist() == [255, 0]
    assert pixels_of(found["integers"].path.read_bytes()).ravel().tolist() == [0, 255]
    assert pixels_of(found["first"].path.read_bytes()).shape == (5, 6, 3)


def test_tensors_and_pictures_of_pil_are_pictures(run, tmp_path):
    torch, pil = pytest.importorskip("torch"), pytest.importorskip("PIL.Image")
    run.image("tensor", torch.ones(3, 4, 5, dtype=torch.bfloat16, requires_grad=True))
    picture = pil.fromarray(numpy.full((4, 6, 3), 9, numpy.uint8))
    run.image("pil", picture)
    run.image("cmyk", picture.convert("CMYK"))
    for form in ("jpeg", "gif", "webp", "bmp", "png"):
        picture.save(tmp_path / f"x.{form}")
        run.image(form, tmp_path / f"x.{form}")
        run.image(f"bytes/{form}", (tmp_path / f"x.{form}").read_bytes())
    found = rows(run)
    assert run.odd.counts == {}
    assert (pixels_of(found.pop("tensor").path.read_bytes()) == 255).all()
    for key, row in found.items():
        assert (row.meta["width"], row.meta["height"]) == (6, 4), key
        with pil.open(row.path) as shown:
            assert shown.size == (6, 4) and shown.format.lower() == row.format


def test_a_figure_is_drawn_when_it_is_given(run):
    class Figure:
        dpi, shade = 100.0, 0

        def get_size_inches(self):
            return (4, 3)

        def savefig(self, file, format):
            assert format == "png"
            file.write(b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", 400, 300) + b"x")

    class Axes:
        figure = Figure()

    class Pyplot:
        gcf = staticmethod(Figure)

    run.figure("figure", Figure(), caption="c")
    run.figure("axes", Axes())
    run.figure("pyplot", Pyplot())
    Figure.dpi = 1e6
    run.figure("bomb", Figure())
    found = rows(run)
    assert found.keys() == {"figure", "axes", "pyplot"}
    assert {(row.kind, row.meta["width"]) for row in found.values()} == {("figure", 400)}
    assert run.odd.counts == {"media_too_large": 1}


def test_sound_is_a_wav_of_the_samples(run, tmp_path):
    run.audio("floats", numpy.array([0.0, 1.0, -1.0, 3.0]), sample_rate=8000)
    run.audio("stereo", numpy.zeros((2, 100), numpy.int16), sample_rate=16000)
    with wave.open(io.BytesIO(rows(run)["floats"].path.read_bytes())) as sound:
        assert (sound.getframerate(), sound.getnchannels()) == (8000, 1)
        assert struct.unpack("<4h", sound.readframes(4)) == (0, 32767, -32767, 32767)
    stereo = rows(run)["stereo"]
    assert (stereo.meta["channels"], stereo.meta["seconds"]) == (2, 0.006)
    run.audio("path", stereo.path)
    assert rows(run)["path"].hash == stereo.hash


def test_a_histogram_counts_every_finite_number(run):
    torch = pytest.importorskip("torch")
    values = numpy.random.default_rng(1).normal(size=1000)
    run.histogram("array", values)
    run.histogram("list", [*values, float("nan"), float("inf")], bins=10)
    run.histogram("tensor", torch.tensor([1.0, 2.0], dtype=torch.bfloat16))
    run.histogram("one value", [2, 2, 2])
    run.histogram("made", [1, 2], edges=[0, 1, 2])
    run.histogram("truths", numpy.array([True, False]))
    found = rows(run)
    assert run.odd.counts == {} and len(found) == 6
    for row in found.values():
        counts, edges = row.data["counts"], row.data["edges"]
        assert len(edges) == len(counts) + 1 == row.meta["bins"] + 1
        assert sum(counts) == row.meta["count"]
    assert found["array"].data["counts"] == numpy.histogram(values, 64)[0].tolist()
    assert found["list"].data["counts"] == numpy.histogram(values, 10)[0].tolist()
    assert found["list"].meta["nonfinite"] == 2
    run.histogram("fine", values, bins=4096)
    fine = rows(run)["fine"]
    assert fine.data is None and len(json.loads(fine.path.read_bytes())["counts"]) == 4096


def test_tables_of_every_form_are_rows_under_their_columns(run):
    pyarrow = pytest.importorskip("pyarrow")
    wanted = {"columns": ["a", "b"], "data": [[1, "x"], [2, None]]}
    run.table("rows", [[1, "x"], (2, None)], columns=["a", "b"])
    run.table("dicts", [{"a": 1, "b": "x"}, {"a": 2}])
    run.table("columns", {"a": numpy.array([1, 2]), "b": ["x", None]})
    run.table("arrow", pyarrow.table({"a": [1, 2], "b": ["x", None]}))
    found = rows(run)
    assert {key: row.data for key, row in found.items()} == dict.fromkeys(found, wanted)
    run.table("odd", [[float("nan"), 2**70, {1: b"\xff"}, object, "\ud800"]])
    run.table("long", [[number, "text"] for number in range(10_000)], columns=["n", "s"])
    run.table("empty", [], columns=["a"])
    found = rows(run)
    assert run.odd.counts == {}
    assert found["odd"].data["data"][0][0] in (None, "nan") and len(found["odd"].data["data"]) == 1
    assert found["empty"].data == {"columns": ["a"], "data": []}
    long = json.loads(found["long"].path.read_bytes())
    assert len(long["data"]) == 10_000 == found["long"].meta["rows"]
    assert long["data"][-1] == [9999, "text"]


def test_a_table_of_a_data_frame_has_its_columns(run):
    class Frame:  # as pandas has it
        columns = ("a", "b")

        def itertuples(self, index, name):
            assert (index, name) == (False, None)
            return iter([(1, "x"), (2, "y")])

    run.table("frame", Frame())
    assert rows(run)["frame"].data == {"columns": ["a", "b"], "data": [[1, "x"], [2, "y"]]}


def test_texts_keep_their_lines_and_lose_their_secrets(run, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "k3y-0f-s0mebody")
    run.text("short", "two\nlines")
    run.text("long", "word \ud800" * 1000 + "k3y-0f-s0mebody")
    found = rows(run)
    assert found["short"].data == "two\nlines"
    kept_text = found["long"].path.read_text()
    assert len(kept_text) > 5000 and "k3y-0f" not in kept_text


def test_equal_contents_lie_on_the_disk_once(run):
    pixels = numpy.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=numpy.uint8)
    for step in range(20):
        run.image("same", pixels, step=step)
    media.flush(run)
    index_now(run.dir)
    assert [row.step for row in media_rows(run.dir)] == list(range(20))
    assert len([*kept(run.path)]) == 1


def test_a_resumed_run_keeps_its_media_but_for_what_it_takes_back():
    def attempt(caption, resume="must", **values):
        with track.start("media", id="goes-on", resume=resume) as run:
            run.text("shown", "x", step=5, caption=caption)
            if values:
                run.log(values, step=5)
        index_now(run.dir)
        return [row.caption for row in media_rows(run.dir)]

    assert attempt("first", "never", loss=1.0) == ["first"]
    assert attempt("evaluation, no numbers") == ["first", "evaluation, no numbers"]
    assert attempt("evaluation", accuracy=0.5) == ["first", "evaluation, no numbers", "evaluation"]
    assert attempt("trained again", loss=2.0) == ["trained again"]


# -- hostile -----------------------------------------------------------------------------------


def png_head(width, height):
    return (
        b"\x89PNG\r\n\x1a\n"
        + b"\0\0\0\rIHDR"
        + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    )


class Raises:
    def __getattribute__(self, name):
        raise RuntimeError("somebody else's object")


def test_what_cannot_be_kept_is_refused_by_a_line_and_a_count_and_the_loop_goes_on(
    run, tmp_path, capsys
):
    huge, pipe, ring = tmp_path / "huge.png", tmp_path / "pipe", tmp_path / "ring"
    with huge.open("wb") as file:
        file.write(png_head(10, 10))
        file.truncate(4 << 30)
    os.mkfifo(pipe)
    ring.symlink_to(ring)
    inside = []
    inside.append(inside)
    tries = {
        "bomb": lambda key: run.image(key, png_head(1 << 20, 1 << 20)),
        "huge": lambda key: run.image(key, huge),
        "pipe": lambda key: run.image(key, pipe),
        "ring": lambda key: run.image(key, ring),
        "folder": lambda key: run.image(key, tmp_path),
        "device": lambda key: run.image(key, "/dev/zero"),
        "nul": lambda key: run.image(key, "a\0b"),
        "gone": lambda key: run.image(key, tmp_path / "gone"),
        "text": lambda key: run.image(key, b"not a picture"),
        "cut": lambda key: run.image(key, b"\xff\xd8\xff\xe0"),
        "nan": lambda key: run.image(key, numpy.full((3, 3), numpy.nan)),
        "beyond": lambda key: run.image(key, numpy.full((3, 3), -1.0)),
        "many": lambda key: run.image(key, numpy.zeros((2, 3, 4, 5))),
        "words": lambda key: run.image(key, numpy.array([["a"]])),
        "none": lambda key: run.image(key, None),
        "rude": lambda key: run.image(key, Raises()),
        "empty": lambda key: run.image(key, numpy.zeros((0, 3))),
        "sound": lambda key: run.audio(key, numpy.full(3, numpy.inf), sample_rate=8000),
        "rate": lambda key: run.audio(key, numpy.zeros(3)),
        "bins": lambda key: run.histogram(key, [1.0], bins=0),
        "endless": lambda key: run.histogram(key, itertools.count()),
        "no bins": lambda key: run.histogram(key, [float("nan")]),
        "rows": lambda key: run.table(key, [[1], [1, 2]], columns=["a"]),
        "ring of lists": lambda key: run.table(key, inside, columns=["a", "b"]),
        "most": lambda key: run.text(key, "x", max_bytes=-1),
        "letters": lambda key: run.text(key, "x" * 100, max_bytes=99),
        "figure": lambda key: run.figure(key, object()),
    }
    for number, (name, attempt) in enumerate(tries.items()):
        before = run.odd.total
        attempt(name)
        assert run.odd.total == before + 1, name
        run.log({"loss": 1.0}, step=10 + number)
    run.image("fine", numpy.zeros((2, 2), numpy.uint8))
    assert rows(run).keys() == {"fine"}
    assert {kind.partition("_")[0] for kind in run.odd.counts} == {"media"}
    lines = capsys.readouterr().err.splitlines()
    told = [line for line in lines if line.startswith("albor: ")]
    assert len(told) == media_writer._MAX_LINES and lines == told  # a flood is counted, not printed
    assert "64.0 MiB are allowed" in told[1] and "FIFO" in told[2]
    with Reader(run.dir.store) as reader:
        assert reader.run(run.id).last_step == 10 + len(tries) - 1


def test_keys_and_captions_with_escapes_are_text_and_name_no_file(run):
    key = "../../../etc/passwd\x1b[2J\n"
    run.image(key, numpy.zeros((2, 2), numpy.uint8), caption="\x1b]0;owned\x07" * 100)
    (row,) = rows(run).values()
    assert row.key == "../../../etc/passwd\\x1b[2J\\n"
    assert row.caption.isprintable() and len(row.caption) <= 512
    assert row.path.is_relative_to(run.path / "media")


def test_a_link_in_the_place_of_the_folder_of_media_is_not_followed(run, tmp_path, capsys):
    outside = tmp_path / "outside"
    outside.mkdir()
    (run.path / "media").symlink_to(outside)
    run.image("x", numpy.zeros((2, 2), numpy.uint8))
    assert media.flush(run)
    assert list(outside.iterdir()) == [] and run.odd.counts == {"media_failed": 1}
    assert "image 'x'" in capsys.readouterr().err


def test_limits_of_number_and_size_hold_for_the_whole_run_also_after_a_restart(
    run, monkeypatch, capsys
):
    monkeypatch.setenv("ALBOR_MEDIA_MAX_COUNT", "3")
    monkeypatch.setenv("ALBOR_MEDIA_MAX_BYTES", "many")
    for number in range(5):
        run.text(f"t{number}", "x" * (3000 + number))
        assert media.flush(run)
    assert rows(run).keys() == {"t0", "t1", "t2"}
    assert run.odd.counts == {"media_limit": 2}
    err = capsys.readouterr().err
    assert "ALBOR_MEDIA_MAX_BYTES='many' is not a whole number above 0: 67,108,864 is used" in err
    assert "the run has 3 already" in err
    again = media_writer.MediaWriter(run)  # of another process that goes on with the run
    with pytest.raises(media_writer.RefusedError, match="has 3 already"):
        again.admit_bytes(1)
    monkeypatch.setenv("ALBOR_MEDIA_MAX_COUNT", "100")
    monkeypatch.setenv("ALBOR_MEDIA_MAX_TOTAL", "9000")
    again = media_writer.MediaWriter(run)
    with pytest.raises(media_writer.RefusedError, match=r"8.79 KiB already"):
        again.admit_bytes(1)


def test_a_disk_that_hangs_makes_no_loop_wait_twice(run, monkeypatch):
    hanging, goes_on = threading.Event(), threading.Event()
    real = media_writer.publish

    def hang(*arguments):
        hanging.set()
        goes_on.wait(60)
        return real(*arguments)

    monkeypatch.setattr(media_writer, "publish", hang)
    monkeypatch.setattr(media_writer, "WAIT_S", 0.05)
    monkeypatch.setenv("ALBOR_MEDIA_MAX_QUEUE", "8000")
    run.text("in hand", "x" * 5000)
    assert hanging.wait(60)
    run.text("behind", "y" * 5000)
    monkeypatch.setattr(media_writer, "WAIT_S", 3600)  # a second wait would be noticed
    run.text("behind too", "z" * 5000)
    assert run.odd.counts == {"media_behind": 2}
    run.log({"loss": 1.0}, step=5)
    goes_on.set()
    assert media.flush(run)
    run.text("after", "w" * 5000)
    assert rows(run).keys() == {"in hand", "after"}


def test_a_full_disk_costs_the_medium_and_nothing_else(run, monkeypatch, capsys):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(media_writer, "publish", full)
        run.text("lost", "x" * 5000)
        assert media.flush(run)
    run.text("kept", "x" * 5000)
    assert rows(run).keys() == {"kept"}
    assert "text 'lost' of run" in (err := capsys.readouterr().err) and "No space left" in err
    assert run.odd.counts == {"media_failed": 1}


def test_closing_a_run_waits_for_its_media(monkeypatch):
    with track.start("media") as run:
        for number in range(50):
            run.text(f"t{number}", f"{number} " * 2000)
    index_now(run.dir)
    assert len(media_rows(run.dir)) == 50
    records = [line.record for line in read_journal(run.dir.journal)]
    assert records[-1]["name"] == "run.end"


def test_a_handler_that_closes_the_run_while_it_logs_loses_no_medium():
    with track.start("media") as run:
        run.text("x", "x" * 5000)
        with run._lock:  # as `log` has it when the signal comes
            run.end(by=signal.SIGTERM)
    index_now(run.dir)
    assert [row.key for row in media_rows(run.dir)] == ["x"]


def test_threads_and_forks_may_show_what_they_like(run):
    def show(name):
        for number in range(10):
            run.text(f"{name}/{number}", f"{name}{number}" * 1000)

    threads = [threading.Thread(target=show, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert media.flush(run)
    child = os.fork()
    if child == 0:
        run.text("child", "x" * 5000)
        os._exit(0)
    os.waitpid(child, 0)
    assert len(rows(run)) == 40 and "child" not in rows(run)


DYING = """
import os, sys
import numpy
from albor_core import track
from albor_core.track import media

run = track.start("dying")
print(run.path, flush=True)
pixels = numpy.random.default_rng(1).integers(0, 256, (200, 200, 3), dtype=numpy.uint8)
step = 0
while True:
    step += 1
    pixels[0, 0] = step % 251
    run.image("x", pixels, step=step)
    run.log({"loss": 1.0}, step=step)
    if step == 5:
        media.flush(run)
    print(step, flush=True)
"""


def test_kill_9_leaves_whole_media_and_a_record_of_each_that_was_acknowledged(monkeypatch):
    program = subprocess.Popen(
        [sys.executable, "-c", DYING], stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    path = Path(program.stdout.readline().strip())
    for _ in range(9):
        program.stdout.readline()
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    program.stdout.close()
    run = RunDir(path)
    assert drain_index(run, timeout_s=60.0)
    found = media_rows(run)
    assert {1, 2, 3, 4, 5} <= {row.step for row in found}
    for row in found:
        content = row.path.read_bytes()
        assert hash_of(content) == row.hash and len(content) == row.bytes
    assert all(hash_of(file.read_bytes()) == file.stem for file, _ in kept(path))


def test_the_programs_of_the_page_about_media_keep_what_they_say(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "how-to" / "keep-media.md").read_text()
    monkeypatch.chdir(tmp_path)
    Path("model.bin").write_bytes(b"weights")
    told = {"np": numpy, "track": track}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(block, told)
        index_now(told["run"].dir)
        told.setdefault("first", media_rows(told["run"].dir))
    kinds = collections.Counter(row.kind for row in told["first"])
    assert kinds == {"image": 3, "histogram": 3, "table": 1, "text": 1, "artifact": 1}
    assert told["path"].read_bytes() == b"weights"


def test_the_tracker_loads_no_numpy_and_no_pil_by_itself():
    code = (
        "import sys; from albor_core import track; from albor_core.track import media, artifacts;"
        "from albor_core.track.encode import images, audio, tables, histograms;"
        "print([m for m in ('numpy', 'PIL', 'torch', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


BARE = """
import sys
sys.modules["numpy"] = sys.modules["PIL"] = sys.modules["torch"] = sys.modules["pandas"] = None
from pathlib import Path
from albor_core import track

class Array:
    def __array__(self, *more, **less):
        raise AssertionError("nothing is here to ask it")

with track.start("bare") as run:
    run.image("path", sys.argv[1])
    run.image("bytes", Path(sys.argv[1]).read_bytes())
    run.audio("sound", b"RIFF\\0\\0\\0\\0WAVEfmt ")
    run.histogram("list", [1.0, 2.0, float("nan")])
    run.table("rows", [[1, "a"]], columns=["n", "s"])
    run.text("text", "said")
    run.image("array", Array())
    counts = dict(run.odd.counts)
print(run.path, counts)
"""


def test_a_program_without_numpy_and_pil_keeps_what_needs_neither(tmp_path):
    picture = tmp_path / "x.png"
    picture.write_bytes(png_head(3, 2))
    done = subprocess.run(
        [sys.executable, "-c", BARE, picture], capture_output=True, text=True, cwd=ROOT
    )
    path, _, counts = done.stdout.strip().partition(" ")
    assert counts == "{'media_unreadable': 1}", done.stderr
    assert "image 'array' of run" in done.stderr and "numpy is not installed" in done.stderr
    run = RunDir(Path(path))
    assert drain_index(run, timeout_s=60.0)
    found = {row.key: row.kind for row in media_rows(run)}
    assert found == {
        "path": "image", "bytes": "image", "sound": "audio", "list": "histogram",
        "rows": "table", "text": "text",
    }  # fmt: skip


def test_a_lazy_picture_that_is_a_bomb_is_refused_before_its_first_pixel_is_decoded(run):
    class Lazy:
        mode, size = "RGB", (1 << 20, 1 << 20)

        def save(self, *more, **less):
            raise AssertionError("it was decoded")

        copy = convert = load = save

    run.image("bomb", Lazy())
    assert run.odd.counts == {"media_too_large": 1}
