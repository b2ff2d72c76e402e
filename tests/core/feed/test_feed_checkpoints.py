"""What can be said of checkpoints without reading a tensor."""

from __future__ import annotations

import json

from albor_core.feed.archive.checkpoints import Shelf
from albor_core.store.rows.rows import EventRow


def save(folder, name, step, *, size=5, stated=5, created=1.0):
    made = folder / name
    made.mkdir(parents=True)
    (made / "model.safetensors").write_bytes(b"x" * size)
    manifest = {"step": step, "created": created, "files": {"model.safetensors": {"size": stated}}}
    (made / "manifest.json").write_text(json.dumps(manifest))
    return made


def saved(step):
    return EventRow(name="checkpoint.saved", step=step)


def by_name(shelf):
    return {one.name: one for one in shelf.saved}


def test_newest_best_and_losses_stand_with_the_checkpoints_they_belong_to(tmp_path):
    for step in (100, 200, 300):
        save(tmp_path, f"step-{step:08d}", step)
    (tmp_path / "best.json").write_text('{"step": 200, "value": 2.5}')
    shelf = Shelf(tmp_path).look([saved(100), saved(200)], {100: 3.0})
    assert [one.step for one in shelf.saved] == [300, 200, 100]
    assert [one.state for one in shelf.saved] == ["whole", "verified", "verified"]
    assert [one.is_latest for one in shelf.saved] == [True, False, False]
    assert [one.val_loss for one in shelf.saved] == [None, 2.5, 3.0]
    assert [one.is_best for one in shelf.saved] == [False, True, False]


def test_a_file_of_another_size_is_seen_and_is_never_the_latest(tmp_path):
    save(tmp_path, "step-00000100", 100)
    save(tmp_path, "step-00000200", 200, size=4)
    newest, older = Shelf(tmp_path).look([saved(200)]).saved
    assert newest.state == "damaged"
    assert newest.reason == "model.safetensors has 4 bytes, not 5"
    assert older.is_latest


def test_what_was_set_aside_keeps_the_reason_that_was_told(tmp_path):
    save(tmp_path, "bad-step-00000200", 200)
    save(tmp_path, "bad-step-00000100-2", 100)
    reason = "optimizer.safetensors is damaged (its blake3 hash differs)"
    told = EventRow(name="checkpoint.bad", data={"path": "/r/bad-step-00000200", "reason": reason})
    found = by_name(Shelf(tmp_path).look([told]))
    assert found["bad-step-00000200"].reason == reason
    assert "did not say why" in found["bad-step-00000100-2"].reason
    assert {one.state for one in found.values()} == {"damaged"}


def test_one_that_is_written_now_is_neither_good_nor_bad(tmp_path):
    (tmp_path / "step-00000300.tmp").mkdir()
    (one,) = Shelf(tmp_path).look().saved
    assert (one.state, one.is_latest) == ("writing", False)


def test_names_that_are_not_ours_links_and_files_are_left_alone(tmp_path):
    save(tmp_path, "step-00000100", 100)
    (tmp_path / "step-00000200.del").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "step-00000300").write_text("a file")
    (tmp_path / "step-00000400").symlink_to(tmp_path / "step-00000100")
    assert list(by_name(Shelf(tmp_path).look())) == ["step-00000100"]


def test_a_manifest_that_names_files_elsewhere_is_damage(tmp_path):
    made = save(tmp_path, "step-00000100", 100)
    listed = {"../../secret": {"size": 1}}
    (made / "manifest.json").write_text(json.dumps({"step": 100, "files": listed}))
    (one,) = Shelf(tmp_path).look().saved
    assert one.state == "damaged"
    assert "../../secret" in one.reason


def test_a_folder_that_is_gone_says_so(tmp_path):
    assert Shelf(tmp_path / "gone").look().problem
    assert Shelf(tmp_path).look().problem == ""


def test_failed_saves_and_those_that_were_pruned_are_counted(tmp_path):
    save(tmp_path, "step-00000300", 300)
    failed = EventRow(
        name="checkpoint.failed", step=400, data={"reason": "No space left on device"}
    )
    shelf = Shelf(tmp_path).look([saved(100), saved(200), saved(300), failed])
    assert shelf.written == 3
    assert [event.step for event in shelf.failed] == [400]
