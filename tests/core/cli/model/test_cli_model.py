"""`albor model`: its documents, its text, and how it refuses what is none."""

import json
import os
import re

import called
import jsonschema
import pytest
import torch
from hf_folder import SHAPES, write_model, write_tensors, write_tokenizer
from safetensors.torch import load_file, save_file

from albor_core.documents.json_schema import schema_of
from albor_core.model.hf.verify import CHECKS


def albor(*words):
    """(exit code, stdout)."""
    return called.call(*words)[:2]


def call(*words):
    return albor("model", *words)


def document(*words):
    """(exit code, the document), valid against its schema."""
    code, said = call(*words, "--json")
    found = json.loads(said)
    jsonschema.validate(found, schema_of(found["schema"].removesuffix("/1")))
    return code, found


@pytest.fixture
def folder(tmp_path):
    """A Qwen3 in three files that looks trained, with a tokenizer."""
    write_model(tmp_path / "m", "qwen3", files=3, vocab_size=400)
    write_tokenizer(tmp_path / "m", "qwen2")
    return tmp_path / "m"


def change(folder, name, value):
    """Other numbers for one tensor of a model in one file or many."""
    for file in folder.glob("*.safetensors"):
        tensors = load_file(file)
        if name in tensors:
            save_file({**tensors, name: value(tensors[name])}, file)


def failed(folder):
    code, found = document("verify", folder)
    assert code == (0 if found["ok"] else 1)
    assert [one["name"] for one in found["checks"]] == list(CHECKS)
    return {one["name"]: one["detail"] for one in found["checks"] if one["ok"] is False}


@pytest.mark.parametrize("family", SHAPES)
def test_show_says_what_a_model_of_every_family_consists_of(tmp_path, family):
    model = write_model(tmp_path, family)
    code, found = document("show", tmp_path)
    assert code == 0
    assert found["model_type"] == family and found["fits"]
    count = sum(tensor.numel() for tensor in model.parameters())
    assert found["parameters"] == found["expected_parameters"] == count
    told = {one["name"]: one["shape"] for one in found["tensors"]}
    assert told == {name: [*t.shape] for name, t in model.state_dict().items()}
    assert found["dtypes"] == [{"dtype": "F32", "tensors": len(told), "parameters": count,
                                "bytes": 4 * count}]  # fmt: skip
    code, said = call("show", tmp_path)
    assert code == 0 and family in said and f"{count:,}" in said


def test_show_hashes_are_of_the_bytes_of_each_tensor(folder):
    from blake3 import blake3

    _, found = document("show", folder, "--hashes")
    whole = {}
    for file in folder.glob("*.safetensors"):
        whole |= load_file(file)
    assert found["tensors"] and all(
        one["blake3"] == blake3(whole[one["name"]].numpy().tobytes()).hexdigest()
        for one in found["tensors"]
    )
    assert found["tokenizer"]["eos"] is not None and found["tokenizer"]["tokens"] <= 400


def test_a_sound_model_passes_all_nine(folder):
    assert failed(folder) == {}
    code, said = call("verify", folder)
    assert code == 0 and "9 of 9" in said


def test_a_model_in_half_precision_passes_all_nine(folder):
    for file in folder.glob("*.safetensors"):
        save_file({name: t.bfloat16() for name, t in load_file(file).items()}, file)
    assert failed(folder) == {}


Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    "name, value, check, said",
    [
        (Q, lambda t: t * float("nan"), "values", f"{Q} is not finite"),
        (Q, lambda t: t[:-1].clone(), "shapes", f"{Q} is [63, 32], not [64, 32]"),
        (Q, lambda t: t.to(torch.int32), "shapes", "holds I32, no floats"),
        (Q, torch.zeros_like, "trained", f"{Q} holds 0 throughout"),
    ],
    ids=["nan", "shape", "integers", "zeros"],
)
def test_each_kind_of_damage_fails_the_check_that_asks_for_it(folder, name, value, check, said):
    change(folder, name, value)
    found = failed(folder)
    assert check in found and said in found[check]


def test_a_layer_copied_over_another_is_found(folder):
    tensors = {}
    for file in folder.glob("*.safetensors"):
        tensors |= load_file(file)
    change(folder, Q.replace("0", "1"), lambda _: tensors[Q].clone())
    assert failed(folder) == {
        "layers": "layers 0 and 1 hold the same self_attn.q_proj.weight"
    }  # fmt: skip


def test_a_model_that_never_trained_is_told_from_one_that_did(tmp_path):
    from albor_core.model.llama import Llama, LlamaConfig, init_weights

    config = LlamaConfig(32, 2, 4, 2, 64, 64, 32)
    model = Llama(config)
    init_weights(model, 0)
    (tmp_path / "config.json").write_text(json.dumps(config.to_hf()))
    write_tensors(tmp_path, {n: t.contiguous() for n, t in model.state_dict().items()})
    assert failed(tmp_path)["trained"].startswith("as initialised")


def test_a_checkpoint_whose_bytes_changed_fails_its_manifest(tmp_path):
    from tiny_run import make_run, train_here

    run = make_run(tmp_path, training__max_steps=5)
    assert train_here(run).code == 0
    (newest,) = [path for path in run.checkpoints.iterdir() if path.is_dir()]
    assert failed(run.path) == {}  # the folder of a run stands for its newest checkpoint
    with (newest / "model.safetensors").open("r+b") as file:
        file.seek(-3, os.SEEK_END)
        byte = file.read(1)
        file.seek(-3, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
    assert failed(newest) == {"hashes": "model.safetensors is not what was written"}


def test_ids_beyond_the_vocabulary_are_named(folder):
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**about, "eos_token_id": [2, 400]}))
    assert failed(folder) == {"tokenizer": "eos_token_id 400 is outside vocab_size 400"}
    write_model(folder.parent / "small", "qwen2", vocab_size=100)
    write_tokenizer(folder.parent / "small", "qwen2")
    said = failed(folder.parent / "small")["tokenizer"]
    assert re.fullmatch(r"tokenizer\.json has \d+ tokens, above vocab_size 100", said)


def test_compare_says_how_far_each_tensor_has_moved(folder, tmp_path):
    write_model(tmp_path / "b", "qwen3", files=1, vocab_size=400)
    code, found = document("compare", folder, tmp_path / "b")
    assert code == 0 and found["same"] and found["relative"] == 0
    change(tmp_path / "b", Q, lambda t: t * 1.5)
    change(tmp_path / "b", "model.norm.weight", lambda t: t[:8].clone())
    _, found = document("compare", folder, tmp_path / "b")
    assert not found["same"]
    moved = {one["name"]: one for one in found["tensors"] if one["state"] != "equal"}
    assert moved.keys() == {Q, "model.norm.weight"}
    assert moved[Q]["relative"] == pytest.approx(0.5, abs=1e-6)
    assert moved[Q]["cosine"] == pytest.approx(1.0, abs=1e-6)
    assert moved["model.norm.weight"]["state"] == "shape"
    code, said = call("compare", folder, tmp_path / "b")
    assert code == 0 and Q in said and "1 changed" in said


def test_compare_sets_families_and_dtypes_beside_each_other(folder, tmp_path):
    write_model(tmp_path / "b", "qwen2", vocab_size=400)
    for file in (tmp_path / "b").glob("*.safetensors"):
        save_file({name: t.bfloat16() for name, t in load_file(file).items()}, file)
    _, found = document("compare", folder, tmp_path / "b")
    fields = {one["field"]: (one["a"], one["b"]) for one in found["config"]}
    assert fields["model_type"] == ("qwen3", "qwen2") and fields["head_dim"] == (16, 8)
    assert found["counts"]["only_a"] >= 4 and found["counts"]["only_b"] == 6


# -- what is refused, by name and with what helps ----------------------------------------------


def truncated(folder):
    file = sorted(folder.glob("*.safetensors"))[1]
    file.write_bytes(file.read_bytes()[:-100])
    return 7, file.name + " is damaged", "fetch or copy it again"


def pickled(folder):
    tensors = {"a": torch.ones(2)}
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    return 7, "holds pickled weights only (pytorch_model.bin)", "safe_serialization"


def pickled_under_another_name(folder):
    file = sorted(folder.glob("*.safetensors"))[0]
    torch.save({"a": torch.ones(2)}, file)
    return 7, "is pickled, whatever its name says", "safe_serialization"


def index_of_a_missing_file(folder):
    file = sorted(folder.glob("*.safetensors"))[2]
    file.unlink()
    return 7, f"names {file.name}, which is missing", "fetch that file"


def index_out_of_the_folder(folder):
    return _index(folder, "../secret.safetensors"), "which is not a file of this folder", "trust"


def index_at_the_root(folder):
    return _index(folder, "/etc/x.safetensors"), "which is not a file of this folder", "trust"


def index_of_a_pickle(folder):
    (folder / "x.bin").write_bytes(b"")
    return _index(folder, "x.bin"), "names x.bin, which is not safetensors", "safe_serialization"


def _index(folder, name):
    (folder.parent / "secret.safetensors").write_bytes(b"secret")
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"model.norm.weight": name}}))
    return 7


def another_family(folder):
    (folder / "config.json").write_text('{"model_type": "gemma2"}')
    return 7, "model_type 'gemma2' cannot be read", "llama, mistral, qwen2 and qwen3"


def an_adapter(folder):
    for file in folder.iterdir():
        file.unlink()
    about = {"base_model_name_or_path": "org/base", "peft_type": "LORA"}
    (folder / "adapter_config.json").write_text(json.dumps(about))
    save_file({"a": torch.ones(1)}, folder / "adapter_model.safetensors")
    return 7, "is an adapter, not a model", "org/base"


def no_config(folder):
    (folder / "config.json").unlink()
    return 3, "no config.json in", "fetch it, too"


def nothing(folder):
    for file in folder.iterdir():
        file.unlink()
    return 3, "no model.safetensors in", "name a directory"


BAD = [truncated, pickled, pickled_under_another_name, index_of_a_missing_file,
       index_out_of_the_folder, index_at_the_root, index_of_a_pickle, another_family, an_adapter,
       no_config, nothing]  # fmt: skip


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_what_is_no_model_is_refused_by_name_with_what_helps(folder, spoil):
    code, message, hint = spoil(folder)
    before = sorted((path, path.stat().st_size) for path in folder.rglob("*"))
    done, found = document("show", folder)
    assert (done, found["schema"]) == (code, "albor.error/1")
    assert message in found["error"]["message"] and str(folder) in found["error"]["message"]
    assert hint in found["error"]["hint"]
    assert sorted((path, path.stat().st_size) for path in folder.rglob("*")) == before
    verified, answer = document("verify", folder)
    has_files = any(folder.glob("model*"))
    assert verified == (1 if has_files else code)
    assert has_files == (answer["schema"] == "albor.model.verify/1")


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_a_run_does_not_begin_from_what_is_no_model(folder, tmp_path, spoil):
    from tiny_run import tiny_config

    _, message, _ = spoil(folder)
    config = tiny_config(tmp_path, model__path=str(folder))
    if (folder / "config.json").exists() and spoil is not another_family:
        config["model"]["architecture"] = {}
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    planned, text = albor("train", "plan", tmp_path / "c.yaml", "--json")
    said = json.loads(text)
    if spoil is no_config:  # taken for what the config says: it does not fit
        message = "does not fit model.architecture"
    assert planned == 1
    problems = said["problems"] if "problems" in said else said["error"]["problems"]
    assert any(message in one["message"] for one in problems), problems
    assert albor("train", "apply", tmp_path / "c.yaml", "--json")[0] == 2
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_neither_folder_nor_run_is_refused(tmp_path):
    code, found = document("show", tmp_path / "nowhere")
    assert code == 3 and "directory of weights" in found["error"]["hint"]


def test_weights_are_shown_by_layer_and_one_tensor_with_its_histogram(folder):
    code, said = call("weights", folder)
    assert code == 0 and "q_proj" in said and "embed_tokens" in said
    name = "model.layers.1.self_attn.q_proj.weight"
    code, said = call("weights", folder, "--tensor", name)
    assert code == 0 and "rms" in said and "48 bins" in said
    code, found = document("weights", folder, "--tensor", name)
    assert [one["name"] for one in found["tensors"]] == [name]
    code, found = document("weights", folder, "--tensor", "q_proj.weight")
    assert code == 3 and found["error"]["hint"].startswith("--tensor model.layers.0")


def test_weights_and_biases_of_a_layer_stand_under_names_of_their_own(tmp_path):
    write_model(tmp_path, "qwen2")
    code, said = call("weights", tmp_path)
    heads = said.splitlines()[1].split()
    assert code == 0 and {"q_proj", "q_proj.bias", "v_proj.bias", "down_proj"} <= {*heads}
    assert len(heads) == len({*heads})


@pytest.fixture
def tied(tmp_path):
    """A tied model with its head written a second time."""
    write_model(tmp_path / "t", "llama", vocab_size=400, tie_word_embeddings=True)
    file = tmp_path / "t" / "model.safetensors"
    tensors = load_file(file)
    head = tensors["model.embed_tokens.weight"].clone()
    save_file({**tensors, "lm_head.weight": head}, file)
    return tmp_path / "t"


def test_a_tied_head_that_is_written_out_is_the_embedding(tied):
    code, found = document("show", tied)
    assert code == 0 and found["fits"]
    assert "lm_head.weight" not in {one["name"] for one in found["tensors"]}
    change(tied, "lm_head.weight", lambda head: head + 1)
    code, said = call("verify", tied)
    assert code == 1 and "lm_head.weight is not model.embed_tokens.weight, though" in said


def test_a_model_whose_tokenizer_is_broken_is_shown_all_the_same(folder):
    (folder / "tokenizer.json").write_text('{"model": {')
    code, said = call("show", folder)
    assert code == 0 and "not a tokenizer.json" in said


def test_a_generation_config_that_cannot_be_read_or_ends_nothing_fails(folder):
    (folder / "generation_config.json").write_text("{")
    code, said = call("verify", folder)
    assert code == 1 and "generation_config.json is not a JSON object" in said
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 4000]}')
    code, said = call("verify", folder)
    assert code == 1 and "eos_token_id 4000 is outside vocab_size 400" in said


def test_a_folder_in_the_place_of_weights_and_an_adapter_beside_them_are_refused(tmp_path):
    write_model(tmp_path / "a", "llama")
    (tmp_path / "a" / "adapter_config.json").write_text("{}")
    code, found = document("show", tmp_path / "a")
    assert code == 7 and "holds a model and an adapter" in found["error"]["message"]
    (tmp_path / "b" / "model.safetensors").mkdir(parents=True)
    code, found = document("show", tmp_path / "b")
    assert code == 7 and "is a directory, not a file of weights" in found["error"]["message"]
