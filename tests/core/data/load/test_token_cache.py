"""The shared file of token ids: written once, whole or not at all, and never trusted blindly."""

import errno
import fcntl
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tiny_run import END, SEQ_LEN, write_documents

from albor_core.data.load import token_cache
from albor_core.data.load.documents import Boundaries
from albor_core.data.load.packed_shards import PackedShards
from albor_core.data.load.token_cache import make_room, verify_caches
from albor_core.run.errors import DataError, NotFoundError
from albor_core.run.home.folders import albor_home


@pytest.fixture
def split(tmp_path):
    return write_documents(tmp_path / "split", 60, seed=1)


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(token_cache.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))


def opened(split, seq_len=SEQ_LEN, **options):
    return PackedShards(split, seq_len=seq_len, shared_from=0, **options)


def plain(split, seq_len=SEQ_LEN):
    return PackedShards(split, seq_len=seq_len)


def caches(folder=None):
    return sorted((folder or albor_home() / "cache" / "tokens").glob("*.tokens"))


@pytest.mark.parametrize("seq_len", [SEQ_LEN, 16, 7])
def test_the_map_holds_what_the_shards_hold_and_its_documents(split, seq_len):
    shared, own = opened(split, seq_len), plain(split, seq_len)
    every = np.arange(len(own))
    assert len(shared) == len(own)
    assert (shared.batch(every) == own.batch(every)).all()
    wanted = Boundaries(END, None).inner(own.batch(every))
    for shards in (shared, own):
        assert shards.inner_documents(every).tolist() == wanted.tolist()


def test_it_is_written_once_and_then_no_shard_is_read(split, monkeypatch):
    first = opened(split)
    (file,) = caches()
    written = file.stat().st_ino
    monkeypatch.setattr(PackedShards, "_fill", None)
    again = opened(split)
    assert (again.batch(range(60)) == first.batch(range(60))).all()
    assert file.stat().st_ino == written
    assert [one.suffix for one in sorted(file.parent.iterdir())] == [".lock", ".tokens"]


def test_small_data_leave_no_file(split):
    plain(split)
    assert caches() == []


def test_a_smaller_model_is_told_the_row_whose_id_it_does_not_know(split):
    opened(split)
    with pytest.raises(DataError, match=r"shard-00000.parquet: row \d+: id \d+"):
        opened(split, vocab_size=20)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "tail"])
def test_a_damaged_file_is_written_again(split, damage):
    wanted = opened(split).batch(range(60))
    (file,) = caches()
    file.chmod(0o600)
    raw = bytearray(file.read_bytes())
    if damage == "flipped":
        raw[100] ^= 1
    raw = {"cut": raw[:-300], "flipped": raw, "empty": b"", "tail": raw[:-8] + b"x" * 8}[damage]
    file.write_bytes(raw)
    assert (opened(split).batch(range(60)) == wanted).all()
    assert caches()[0].read_bytes() != raw


def test_a_file_that_is_cut_short_while_in_use_is_written_again_and_no_signal_comes(split):
    shards = opened(split)
    wanted, inner = shards.batch(range(60)), shards.inner_documents(range(60))
    for read, right in ((shards.batch, wanted), (shards.inner_documents, inner)):
        (file,) = caches()
        file.chmod(0o600)
        os.truncate(file, 64)
        assert (read(range(60)) == right).all()
    caches()[0].chmod(0o600)
    os.truncate(caches()[0], 64)
    (split / "shard-00000.parquet").unlink()
    with pytest.raises(NotFoundError, match=r"shard-00000\.parquet"):
        shards.batch([40])


def test_a_file_that_is_removed_while_in_use_goes_on(split):
    shards = opened(split)
    wanted = shards.batch(range(60))
    caches()[0].unlink()
    assert (shards.batch(range(60)) == wanted).all()


def test_without_room_at_home_it_lies_in_the_temporary_folder_and_without_any_in_memory(
    split, tmp_path, monkeypatch
):
    plain_allocate, home = os.posix_fallocate, str(albor_home())

    def full(places):
        def allocate(fd, offset, size):
            path = str(Path(f"/proc/self/fd/{fd}").readlink())
            if any(path.startswith(place) for place in places):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            plain_allocate(fd, offset, size)

        return allocate

    wanted = plain(split).batch(range(60))
    monkeypatch.setattr(token_cache.os, "posix_fallocate", full([home]))
    assert (opened(split).batch(range(60)) == wanted).all()
    there = tmp_path / "tmp" / f"albor-tokens-{os.getuid()}"
    assert caches() == [] and len(caches(there)) == 1
    caches(there)[0].unlink()
    monkeypatch.setattr(token_cache.os, "posix_fallocate", full([home, str(tmp_path / "tmp")]))
    assert (opened(split).batch(range(60)) == wanted).all()
    assert caches() == caches(there) == []
    assert not [*albor_home().rglob("*.draft"), *there.rglob("*.draft")]


def test_the_oldest_that_no_process_holds_make_room(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    for age, name in enumerate("abcd"):
        (folder / f"{name}.tokens").write_bytes(b"x" * 1000)
        os.utime(folder / f"{name}.tokens", (age, age))
    (folder / "killed.draft").write_bytes(b"x" * 5000)
    with (folder / "a.tokens").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        make_room(folder, 1500, kept=4000, free=0)
    assert [one.stem for one in caches(folder)] == ["a", "d"]
    assert not (folder / "killed.draft").exists()
    with pytest.raises(OSError, match="no room for"):
        make_room(folder, 1 << 60, free=0)
    assert caches(folder) == []


def test_a_shared_map_is_held_for_as_long_as_it_is_used(split):
    shards = opened(split)
    make_room(caches()[0].parent, 1, kept=0, free=0)
    assert len(caches()) == 1
    del shards
    make_room(caches()[0].parent, 1, kept=0, free=0)
    assert caches() == []


RANK = textwrap.dedent("""
    import sys
    from pathlib import Path
    from albor_core.data.load.packed_shards import PackedShards
    made = []
    plain = PackedShards._fill
    def counting(self, *rest):
        made.append(1)
        return plain(self, *rest)
    PackedShards._fill = counting
    sys.stdin.readline()
    shards = PackedShards(Path(sys.argv[1]), seq_len=32, shared_from=0)
    print(len(made), int(shards.batch(range(60)).sum()))
""")


@pytest.mark.slow
def test_of_ranks_that_begin_together_one_writes_and_the_others_wait(split):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(split)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for rank in ranks:
        rank.stdin.write("\n")
        rank.stdin.flush()
    said = [rank.communicate()[0].split() for rank in ranks]
    assert sorted(made for made, _ in said) == ["0", "0", "1"]
    assert {total for _, total in said} == {str(plain(split).batch(range(60)).sum())}


def test_a_killed_writer_leaves_nothing_that_is_taken_for_a_cache(split, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(token_cache, "_digests", killed)
    with pytest.raises(KeyboardInterrupt):
        opened(split)
    assert caches() == []
    monkeypatch.undo()
    assert len(opened(split)) == 60


def test_verify_reads_every_byte_of_the_caches_of_a_split(split, tmp_path):
    other = write_documents(tmp_path / "other", 60, seed=2)
    for seq_len in (SEQ_LEN, 16):
        opened(split, seq_len)
    assert [*verify_caches(split)] == []
    for file in caches():
        raw = bytearray(file.read_bytes())
        raw[1000] ^= 1
        file.chmod(0o600)
        file.write_bytes(raw)
    found = [*verify_caches(split)]
    assert [one.file for one in found] == [str(file) for file in caches()]
    assert all("block 0 is damaged" in one.message and "rm " in one.hint for one in found)
    assert [*verify_caches(other)] == []
