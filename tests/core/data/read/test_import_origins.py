"""Where a source was fetched from is recorded with its hash, and told by its provenance."""

import hashlib
from pathlib import Path

import pytest

from albor_core.data.pipeline.provenance import markdown, provenance
from albor_core.data.pipeline.recipe import parse_recipe
from albor_core.data.read.inputs import Asked, Origin, origins_of
from albor_core.data.read.sources import import_sources
from albor_core.run.errors import ConfigError, UsageError

URL = "https://example.org/rows.jsonl?a=b"


def test_url_and_revision_of_a_source_are_in_its_provenance(tmp_path):
    rows, plain = tmp_path / "rows.jsonl", tmp_path / "other.jsonl"
    rows.write_text('{"text": "one"}\n')
    plain.write_text('{"text": "two"}\n')
    origins = origins_of([rows, plain], [f"{rows}={URL}"], [f"{rows}=v2"])
    import_sources([rows, plain], tmp_path / "out", Asked(origins=origins))
    told = provenance(tmp_path / "out")
    facts = {one["source"]: one for one in told["sources"]}
    fetched, other = facts["rows.jsonl"], facts["other.jsonl"]
    assert (fetched["url"], fetched["revision"]) == (URL, "v2")
    assert fetched["sha256"] == hashlib.sha256(rows.read_bytes()).hexdigest()
    assert (other["url"], other["revision"], other["sha256"]) == (None, None, None)
    assert f"| {URL} | v2 |" in markdown(told)


def test_of_one_source_the_value_is_enough(tmp_path):
    path = tmp_path / "a"
    assert origins_of([path], [URL], ["v1"]) == ((path, Origin(URL, "v1")),)


@pytest.mark.parametrize(
    ("urls", "said"),
    [
        ([URL], "does not begin with one of the sources"),
        (["a=nothing"], "is not a URL"),
        (["a=https://me:secret@example.org/x"], "has a password in it"),
    ],
)
def test_what_is_no_origin_is_refused(urls, said):
    with pytest.raises(UsageError, match=said) as refused:
        origins_of([Path("a"), Path("b")], urls, [])
    assert "secret" not in str(refused.value)


def test_a_recipe_says_the_origin_of_a_source():
    raw = f"""name: x
import:
  sources: [src, {{path: rows.jsonl, url: "{URL}", revision: v2}}]
tokenizer: {{vocab_size: 400}}
pretokenize: {{seq_len: 64}}
"""
    section = parse_recipe(raw.encode(), file="r.yaml").source
    assert section.paths() == ["src", "rows.jsonl"] and section.sources[1].revision == "v2"
    for said in ("nothing", ""):
        with pytest.raises(ConfigError) as refused:
            parse_recipe(raw.replace(URL, said).encode(), file="r.yaml")
        (problem,) = refused.value.problems
        assert problem.field == "import.sources.1.url" and "is not a URL" in problem.message
