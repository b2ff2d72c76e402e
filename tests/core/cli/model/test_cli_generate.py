"""`albor generate`: what it writes, where it stops, and how it refuses what it cannot continue."""

import io
import json

import pytest
import torch
from called import call, document
from hf_folder import write_model, write_tokenizer
from tokenizers import AddedToken, Tokenizer

from albor_core.cli.model.generate import DTYPES, _prompt, clean_text
from albor_core.model.generate.text_model import load_text_model
from albor_core.run.errors import UsageError
from albor_core.run.home.new_run import create_run

PROMPT = "def fibonacci(n):"


def completions(*words, **how):
    code, found = document("generate", *words, **how)
    assert code == 0, found
    return found["completions"]


def shown(completion):
    """As a terminal gets it: whole lines, nothing that it would obey."""
    text = clean_text(completion["text"])
    return text + "\n" * (not text.endswith("\n"))


@pytest.fixture
def folder(tmp_path):
    write_model(tmp_path / "m", "qwen3", vocab_size=400)
    write_tokenizer(tmp_path / "m", "qwen2")
    return tmp_path / "m"


def test_text_on_stdout_is_that_of_the_document(folder):
    code, said, talk = call("generate", folder, PROMPT, "--max-new-tokens", 12)
    [one] = completions(folder, PROMPT, "--max-new-tokens", 12)
    assert code == 0 and len(one["ids"]) == 12 and one["finish"] == "length"
    assert said == shown(one)
    assert "12 tokens" in talk


def test_a_text_is_shown_while_it_is_written(folder, monkeypatch):
    from albor_core.model.generate.engine import Engine

    told = []
    step = Engine.step
    monkeypatch.setattr(Engine, "step", lambda engine: told.append(0) or step(engine))
    monkeypatch.setattr("albor_core.cli.model.generate.write_stdout", told.append)
    assert call("generate", folder, PROMPT, "--max-new-tokens", 12)[0] == 0
    shown = [at for at, one in enumerate(told) if isinstance(one, str)]
    steps = [at for at, one in enumerate(told) if one == 0]
    assert shown[0] < steps[-1] and len(steps) == 12


def test_a_prompt_comes_as_a_word_a_file_or_stdin(folder, tmp_path):
    (tmp_path / "p.txt").write_text(PROMPT + "\n")
    ways = [
        completions(folder, PROMPT),
        completions(folder, "--prompt-file", tmp_path / "p.txt"),
        completions(folder, "--prompt-file", "-", stdin=PROMPT.encode()),
        completions(folder, stdin=PROMPT.encode()),
    ]
    assert all(one == ways[0] for one in ways)


def test_many_texts_have_the_seeds_that_follow_and_each_is_its_own(folder):
    how = ("--temperature", "1.0", "--max-new-tokens", 8)
    many = completions(folder, PROMPT, "-n", 3, "--seed", 5, *how)
    assert [one["seed"] for one in many] == [5, 6, 7]
    assert len({tuple(one["ids"]) for one in many}) == 3
    assert completions(folder, PROMPT, "--seed", 6, *how) == [many[1]]
    code, said, talk = call("generate", folder, PROMPT, "-n", 3, "--seed", 5, *how)
    assert code == 0 and "text 3 of 3, seed 7" in talk
    assert said == "".join(map(shown, many))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_writes_on_a_cpu(folder, dtype):
    code, found = document(
        "generate", folder, PROMPT, "--max-new-tokens", 6, "--dtype", dtype, "--device", "cpu"
    )
    assert (code, found["dtype"], found["device"]) == (0, dtype, "cpu")
    assert len(found["completions"][0]["ids"]) == 6


def test_top_k_of_one_is_greedy_at_any_temperature(folder):
    short = ("--max-new-tokens", 8)
    warm = completions(folder, PROMPT, "--top-k", 1, "--temperature", 2, *short)
    assert warm == completions(folder, PROMPT, *short)
    assert warm == completions(folder, PROMPT, "--top-p", "1e-9", "--temperature", 2, *short)


def test_a_stop_text_ends_a_text_before_itself(folder):
    [whole] = completions(folder, PROMPT, "--max-new-tokens", 12)
    stop = whole["text"][3:5]
    [cut] = completions(folder, PROMPT, "--max-new-tokens", 12, "--stop", stop)
    assert cut["text"] == whole["text"][: whole["text"].index(stop)]
    assert cut["finish"] == "stop" and len(cut["ids"]) < 12


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_eos_of_the_files_beside_the_weights_ends_a_text(folder, file):
    [whole] = completions(folder, PROMPT, "--max-new-tokens", 12)
    about = json.loads((folder / "config.json").read_text())
    end = whole["ids"][4]
    about |= {"eos_token_id": [399, end]}
    (folder / file).write_text(json.dumps(about))
    [cut] = completions(folder, PROMPT, "--max-new-tokens", 12)
    assert cut["ids"] == whole["ids"][: whole["ids"].index(end)] and cut["finish"] == "stop"


def name_specials(folder, *names, **roles):
    """Tokens that are special, and what the file beside the tokenizer calls some of them."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    tokenizer.save(str(folder / "tokenizer.json"))
    about = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**about, **roles}))
    return [tokenizer.token_to_id(name) for name in names]


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), {}),
        (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), {}),
        (("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"), {}),
        (tuple(f"<\uff5cfim\u2581{part}\uff5c>" for part in ("begin", "hole", "end")), {}),
        (("A!", "B!", "C!"), {"prefix_token": "A!", "suffix_token": {"content": "B!"},
                              "middle_token": "C!"}),
    ],
    ids=str,
)  # fmt: skip
def test_a_hole_is_asked_for_by_the_tokenizers_own_names(folder, names, roles):
    prefix, suffix, middle = name_specials(folder, *names, **roles)
    model = load_text_model(folder, device=torch.device("cpu"), dtype=torch.float32)
    before, after = model.encode(PROMPT), model.encode("\n    return a")
    for order, ids in (
        ("psm", [prefix, *before, suffix, *after, middle]),
        ("spm", [prefix, suffix, *after, middle, *before]),
    ):
        assert model.infill(PROMPT, "\n    return a", order) == ids
        code, found = document("generate", folder, PROMPT, "--suffix", "\n    return a", "--order",
                               order, "--max-new-tokens", 4)  # fmt: skip
        assert (code, found["order"], found["prompt_tokens"]) == (0, order, len(ids))
    assert found["suffix"] == "\n    return a"
    assert middle not in model.infill("", f"a {names[2]}", "psm")[:-1]  # text that looks like one


def test_a_filling_ends_at_any_special_token(folder):
    how = (folder, PROMPT, "--suffix", "x", "--max-new-tokens", 12)
    name_specials(folder, "<fim_prefix>", "<fim_suffix>", "<fim_middle>")
    [whole] = completions(*how)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    end = whole["ids"][4]
    tokenizer.add_special_tokens([AddedToken(tokenizer.id_to_token(end), special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    [cut] = completions(*how)
    assert cut["ids"] == whole["ids"][: whole["ids"].index(end)] and cut["finish"] == "stop"
    assert completions(folder, PROMPT, "--max-new-tokens", 12)  # a prompt that goes on still reads


def test_a_hole_needs_sentinels_and_an_order_a_hole(folder):
    code, _, said = call("generate", folder, PROMPT, "--suffix", "x")
    assert code == 7 and "cannot fill a hole: the tokenizer has no tokens for a prefix" in said
    code, _, said = call("generate", folder, PROMPT, "--order", "spm")
    assert code == 2 and "--order without --suffix" in said


def test_a_run_is_its_newest_checkpoint(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    made = create_run(tmp_path / "runs", "r1", experiment="e", name="r1", kind="train", argv=["x"])
    made.checkpoints.mkdir(exist_ok=True)
    for step in (3, 7):
        kept = made.checkpoints / f"step-{step:08d}"
        kept.symlink_to(folder)
    (folder / "manifest.json").write_text("{}")
    code, found = document("generate", "r1", PROMPT, "--max-new-tokens", 2)
    assert code == 0 and found["model"].endswith("step-00000007")
    assert found["completions"] == completions(folder, PROMPT, "--max-new-tokens", 2)


def test_a_checkpoint_that_a_live_run_removes_meanwhile_is_followed_by_the_next(
    folder, tmp_path, monkeypatch
):
    from albor_core.cli.model.folder import load_newest

    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    made = create_run(tmp_path / "runs", "r1", experiment="e", name="r1", kind="train", argv=["x"])
    made.checkpoints.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text("{}")
    old, new = (made.checkpoints / f"step-{step:08d}" for step in (3, 7))
    old.symlink_to(folder)

    def load(path):
        if path == old:
            old.unlink()
            new.symlink_to(folder)
        return load_text_model(path, device=torch.device("cpu"), dtype=torch.float32)

    assert load_newest("r1", load)[0] == new


def test_control_characters_are_shown_and_never_obeyed(folder):
    assert clean_text("a\x1b[31m\r\n\tb") == "a\u241b[31m\u240d\n\tb"


def _no_tokenizer(folder):
    (folder / "tokenizer.json").unlink()


def _truncated(folder):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def _beyond(folder):
    write_model(folder, "qwen3", vocab_size=300)


def _adapter(folder):
    (folder / "model.safetensors").unlink()
    (folder / "adapter_config.json").write_text("{}")


def _pickled(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04")


def _foreign(folder):
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(about | {"model_type": "gemma"}))


@pytest.mark.parametrize(
    "harm, code, said",
    [
        (_no_tokenizer, 3, "no tokenizer.json"),
        (_truncated, 7, "model.safetensors is damaged"),
        (_beyond, 7, "above vocab_size 300"),
        (_adapter, 7, "is an adapter, not a model"),
        (_pickled, 7, "pickled"),
        (_foreign, 7, "gemma"),
    ],
)
def test_a_folder_that_cannot_write_is_refused_by_name_with_a_next_step(folder, harm, code, said):
    harm(folder)
    before = sorted(folder.iterdir())
    found = document("generate", folder, PROMPT)
    assert found[0] == code and said in found[1]["error"]["message"]
    assert found[1]["error"]["hint"] and sorted(folder.iterdir()) == before
    ended, out, talk = call("generate", folder, PROMPT)
    assert (ended, out) == (code, "") and said in talk and "Traceback" not in talk


@pytest.mark.parametrize(
    "words, code, said",
    [
        (("a" * 200,), 2, "tokens of a prompt leave no room for a new one in a context of 32"),
        ((PROMPT, "--prompt-file", "x"), 2, "a prompt and --prompt-file"),
        (("--prompt-file", "nowhere.txt"), 1, "'nowhere.txt': No such file"),
        ((PROMPT, "--temperature", "-1"), 2, "temperature must be 0 or more, is -1"),
        ((PROMPT, "--top-p", "0"), 2, "top_p must be above 0 and at most 1, is 0"),
        ((PROMPT, "--top-k", "-2"), 2, "top_k must be 0 or more, is -2"),
        ((PROMPT, "--max-new-tokens", "0"), 2, "max_new_tokens must be at least 1, is 0"),
        ((PROMPT, "-n", "0"), 2, "0 is not in the range"),
        ((PROMPT, "--tokenizer", "none.json"), 3, "none.json: no tokenizer.json"),
    ],
    ids=str,
)  # fmt: skip
def test_words_that_mean_nothing_are_refused_by_name(folder, words, code, said, monkeypatch):
    monkeypatch.chdir(folder)
    found = document("generate", folder, *words)
    assert (found[0], said in found[1]["error"]["message"]) == (code, True), found
    assert found[1]["error"]["hint"]


def test_another_tokenizer_must_fit_the_embedding_too(folder, tmp_path):
    few = tmp_path / "few"
    write_model(few, "llama", vocab_size=300)
    code, found = document("generate", few, PROMPT, "--tokenizer", folder / "tokenizer.json")
    assert code == 7 and "above vocab_size 300" in found["error"]["message"]
    (folder / "tokenizer.json").rename(tmp_path / "other.json")
    assert document("generate", folder, PROMPT, "--tokenizer", tmp_path / "other.json")[0] == 0


def test_nowhere_to_read_a_prompt_from_is_said(folder, monkeypatch):
    monkeypatch.setattr("albor_core.cli.model.generate.sys.stdin", None)
    with pytest.raises(UsageError, match="stdin is closed"):
        _prompt(None, None)
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("albor_core.cli.model.generate.sys.stdin", terminal)
    with pytest.raises(UsageError, match="stdin is a terminal"):
        _prompt(None, None)


def test_a_prompt_that_is_not_utf_8_is_refused(folder):
    code, found = document("generate", folder, stdin=b"ab\xff")
    assert code == 2 and "byte 2 is not UTF-8" in found["error"]["message"]


def test_weights_of_no_folder_and_no_run_are_not_found(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path))
    assert document("generate", "nothing", PROMPT)[0] == 3


def test_a_device_that_is_not_there_is_refused(folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, found = document("generate", folder, PROMPT, "--device", "cuda")
    assert code == 2 and "no usable GPU" in found["error"]["message"]


def test_an_empty_prompt_is_what_a_text_begins_with_by_the_files_beside_the_weights(folder):
    on_cpu = {"device": torch.device("cpu"), "dtype": torch.float32}
    tokenizer_knows_none = load_text_model(folder, **on_cpu)
    assert tokenizer_knows_none.special.bos is None
    assert tokenizer_knows_none.encode("") == [1]  # bos_token_id of config.json
    (folder / "generation_config.json").write_text('{"bos_token_id": 7}')
    assert load_text_model(folder, **on_cpu).encode("") == [7]
