"""`albor init`: a config to begin with, which plans as it stands once its data are there."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import jsonschema
import pytest
import yaml
from cli_user import tree_hash, validate
from typed_recipe import give_settings

from albor_core.config.json_schema import config_schema
from albor_core.config.load import load_config
from albor_core.config.recipes.entry import SOME_READ
from albor_core.config.reference import field_docs
from albor_core.config.text.config_file import packaged_configs
from albor_core.config.text.strict_yaml import load_yaml

ROOT = Path(__file__).resolve().parents[4]


def test_what_init_writes_plans_after_the_commands_that_it_names(desk):
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "albor_core" / "run", desk.folder / "src", ignore=ignored)
    document = validate(desk.quick("init", "--json").document)
    assert document["path"] == "train.yaml"
    *making, plan = document["next"]
    head = (desk.folder / "train.yaml").read_text()
    for command in document["next"]:
        assert f"#   {command}\n" in head
    assert desk.quick("train", "validate", "train.yaml").code == 0
    early = desk.quick(*shlex.split(plan)[1:], "--json").document  # only data are missing
    assert {p["field"] for p in early["problems"]} <= {"data.train", "data.val", "data.tokenizer"}
    for command in making:
        done = desk.albor(*shlex.split(command)[1:])
        assert done.code == 0, done
    done = desk.quick(*shlex.split(plan)[1:])
    assert (done.code, done.out.rstrip()[-5:]) == (0, "Ready")


@pytest.mark.parametrize("name", packaged_configs())
def test_every_field_of_it_has_its_meaning_above_it(desk, name):
    assert desk.quick("init", "--from", name, "own.yaml").code == 0
    path = desk.folder / "own.yaml"
    text = path.read_text()
    data = load_yaml(text.encode(), file="own.yaml").data
    assert list(jsonschema.Draft202012Validator(config_schema()).iter_errors(data)) == []
    words = " ".join(line.strip().lstrip("# ") for line in text.splitlines())
    written = [doc for doc in field_docs() if in_file(data, doc.key)]
    assert len(written) > 25
    for doc in written:
        assert f"{doc.meaning} {doc.key.rpartition('.')[2]}:" in words
    ours, theirs = load_config(path).config, load_config(packaged_configs()[name]).config
    assert ours.model == theirs.model and ours.optimizer == theirs.optimizer
    assert f"--packing {ours.data.packing}" in text or ours.data.packing == "concat"


def test_all_settings_of_its_recipe_are_in_it(desk, monkeypatch):
    give_settings(monkeypatch, reads=tuple(SOME_READ))
    assert desk.quick("init").code == 0
    text = (desk.folder / "train.yaml").read_text()
    assert "# Share of the uniform distribution in each target.\n  smoothing: 0.1\n" in text
    assert "  decay:\n    # Steps until there is none.\n    steps: 32768\n" in text
    assert desk.quick("train", "validate", "train.yaml").code == 0
    document = desk.quick("schema", "config").document
    assert list(jsonschema.Draft202012Validator(document).iter_errors(yaml.safe_load(text))) == []


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("smoothing=2", "must be at least 0 and below 1, is 2.0"),
        ("smoothing=[]", "must be a number such as 0.1, 3e-4 or 10B, is []"),
        ("smothing=0.2", "is not a field (did you mean recipe.smoothing?)"),
    ],
)
@pytest.mark.parametrize(("verb", "code"), [("validate", 1), ("plan", 1), ("apply", 2)])
def test_a_wrong_setting_is_one_message_with_the_next_command(
    desk, monkeypatch, setting, said, verb, code
):
    give_settings(monkeypatch, reads=tuple(SOME_READ))
    assert desk.quick("init").code == 0
    before = tree_hash(desk.folder)
    done = desk.quick("train", verb, "train.yaml", "--set", f"recipe.{setting}")
    said, _, hint = said.partition(" (")
    assert (done.code, done.out, tree_hash(desk.folder)) == (code, "", before)
    first, second = done.err.splitlines()
    field = setting.partition("=")[0]
    assert first.startswith(f"albor: --set recipe.{setting}: recipe.{field}: {said}")
    assert "albor train" in second and hint.rstrip(")") in second


def in_file(data, dotted):
    for part in dotted.split("."):
        if not isinstance(data, dict) or part not in data:
            return False
        data = data[part]
    return True


def test_a_folder_gets_the_file_and_a_file_is_never_replaced(desk):
    (desk.folder / "sub").mkdir()
    done = desk.quick("init", "sub")
    assert done.code == 0 and "albor train plan sub/train.yaml" in done.out
    before = tree_hash(desk.folder)
    for words in (("sub",), ("sub/train.yaml",)):
        again = desk.quick("init", *words)
        assert (again.code, again.out) == (2, "")
        assert again.err.splitlines() == [
            "albor: cannot write 'sub/train.yaml': it exists",
            "  next: albor init sub/train-2.yaml",
        ]
    assert desk.quick("init", "no/where.yaml").code == 3
    assert desk.quick("init", "new.yaml", "--from", "no-such").code == 3
    assert tree_hash(desk.folder) == before


def test_a_name_that_a_shell_or_a_comment_would_misread_is_quoted(desk):
    odd = "a b\n model: {}.yaml"
    assert desk.quick("init", odd).code == 0
    assert desk.quick("train", "validate", odd).code == 0
