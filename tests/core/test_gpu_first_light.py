"""The main job on one real GPU: the demo, and 200 bf16 steps of the 62.4M model with telemetry."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.timeout(540),
]
ROOT = Path(__file__).resolve().parents[2]
EXCLUDED = ("test", "tests", "idlelib", "lib2to3", "__pycache__")


def albor(*words, module="albor_core.cli"):
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, words)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-1000:]
    return json.loads(done.stdout) if "--json" in words or "--once" in words else done.stdout


def peak(show, key):
    """The largest recorded value of a metric; steps and wall times aside."""
    return max(
        (value for _, value, _ in show["points"].get(key, []) if value is not None), default=0
    )


def test_the_demo_learns_on_a_gpu(tmp_path):
    made = albor("demo", "--json", "--out", tmp_path / "demo")
    assert len(made["runs"]) == 2
    assert min(run["val_loss"] for run in made["runs"]) < 5.0
    assert all(abs(run["val_loss_first"] - 8.318) < 0.1 for run in made["runs"])
    print(json.dumps({k: made[k] for k in ("seconds", "runs", "verdict")}, indent=1))


def test_the_62m_model_trains_200_steps_in_bf16_with_telemetry(tmp_path):
    folders = [sysconfig.get_paths()["stdlib"]]
    folders += [Path(torch.__file__).parent]  # a second tree: 20 MB of Python more
    corpus, tokenizer, shards = (tmp_path / n for n in ("c.parquet", "tokenizer.json", "shards"))
    exclude = [
        word
        for name in (*EXCLUDED, "site-packages", "dist-packages")
        for word in ("--exclude", name)
    ]
    albor("data", "import", *folders, "-o", corpus, *exclude)
    albor("tokenizer", "apply", corpus, "-o", tokenizer, "--vocab-size", 32768)
    albor("data", "pretokenize", corpus, "--tokenizer", tokenizer, "-o", shards, "--seq-len", 1024)
    sets = {
        "data.train": shards / "train",
        "data.val": shards / "val",
        "data.tokenizer": tokenizer,
        "data.batch_size": 32,
        "training.output_dir": tmp_path / "runs",
        "training.max_steps": 200,
        "training.epochs": 50,
        "training.warmup_steps": 20,
        "training.gradient_accumulation": 1,
        "training.mixed_precision": "bf16",
        "training.save_interval": 100,
        "training.eval_interval": 100,
        "monitoring.system.interval": 500,
    }
    overrides = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    done = albor(
        "train",
        "apply",
        "configs/train/pretrain-50m.yaml",
        "--json",
        "--name",
        "first-light",
        *overrides,
    )
    assert done["exit_code"] == 0
    run = done["run"]["path"]
    show = albor("runs", "show", run, "--json")
    first, last = show["points"]["train/loss"][0][1], show["points"]["train/loss"][-1][1]
    assert abs(first - 10.397) < 0.1
    assert last < first - 3
    assert show["run"]["last_step"] == 200
    # telemetry is real and reaches every place that shows it
    for key in ("util_percent", "memory_bytes", "power_w", "temperature_c"):
        assert peak(show, f"gpu0/{key}") > 0, key
    state = json.loads((Path(run) / "training_state.json").read_text())
    assert state["gpu"][0]["memory_total_bytes"] > 0
    assert state["mfu"] > 0
    once = albor("--once", run, module="albor_tui.main")
    assert "H200" in json.dumps(once) or state["gpu"][0]["name"] in json.dumps(once)
    print(
        json.dumps(
            {
                "gpu": state["gpu"][0]["name"],
                "loss": [first, last],
                "tokens_per_s": show["summary"]["perf/tokens_per_s"],
                "mfu": show["summary"]["perf/mfu"],
                "memory": peak(show, "gpu0/memory_bytes"),
                "util": peak(show, "gpu0/util_percent"),
                "power": peak(show, "gpu0/power_w"),
            },
            indent=1,
        )
    )
