"""`--help --json`: the whole command line as one document."""

from __future__ import annotations

import json

import click
import jsonschema
import pytest
from click.testing import CliRunner

from albor_core.cli.main import cli
from albor_core.cli.reference import walk
from albor_core.documents.json_schema import schema_of
from albor_core.run.values.lenient import strict_json


def typed(*words):
    return CliRunner().invoke(cli, words)


def tree(*words):
    done = typed(*words)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schema_of("albor.help")).validate(document)
    assert strict_json(document) == document
    return document


def nodes(node):
    yield node
    for child in node["commands"]:
        yield from nodes(child)


def test_the_tree_holds_every_command_with_every_argument_and_option():
    found = {node["path"]: node for node in nodes(tree("--help", "--json")["command"])}
    commands = dict(walk(cli, "albor"))
    assert found.keys() == commands.keys()
    for path, command in commands.items():
        node = found[path]
        assert node["summary"] and node["help"], path
        named = [param for param in command.params if isinstance(param, click.Option)]
        assert [option["flags"] for option in node["options"]] == [p.opts for p in named]
        assert len(node["arguments"]) == len(command.params) - len(named)


def test_what_a_program_needs_to_know_of_an_option_is_there():
    (plan,) = nodes(tree("train", "plan", "--help", "--json")["command"])
    by_flag = {option["flags"][0]: option for option in plan["options"]}
    assert by_flag["--json"]["is_flag"] and by_flag["--json"]["value"] is None
    override = by_flag["--set"]
    assert (override["value"], override["is_repeatable"]) == ("KEY=VALUE", True)
    assert [(a["name"], a["is_required"]) for a in plan["arguments"]] == [("CONFIG", True)]
    (run,) = nodes(tree("guard", "run", "--json", "--help")["command"])
    assert [(a["name"], a["is_repeatable"]) for a in run["arguments"]] == [("CMD", True)]
    (listing,) = nodes(tree("runs", "ls", "-h", "--json")["command"])
    limit = next(option for option in listing["options"] if option["flags"] == ["--limit"])
    assert (limit["default"], limit["type"], limit["is_flag"]) == (100, "integer", False)


def test_a_group_gives_what_is_below_it_and_names_its_default():
    attention = tree("attention", "--help", "--json")["command"]
    assert attention["path"] == "albor attention" and attention["default"] == "ls"
    assert {node["path"] for node in nodes(attention)} > {"albor attention ack"}
    assert tree("--quiet", "runs", "--json", "--help")["command"]["path"] == "albor runs"


@pytest.mark.parametrize("words", [("nope", "--help", "--json"), ("runs", "nope", "-h", "--json")])
def test_a_command_that_is_none_has_no_tree(words):
    done = typed(*words)
    assert done.exit_code == 2
    assert "No such command 'nope'" in done.output


def test_words_of_another_program_ask_for_nothing():
    done = typed("guard", "run", "--json", "--option", "x=1", "--", "prog", "--help")
    assert "albor.help" not in done.output


def test_the_help_for_people_says_how_to_track_a_loop_of_ones_own():
    page = typed("--help").output
    assert "from albor_core import track" in page
    assert "albor guard run -- CMD" in page
    assert "albor --help --json" in page
