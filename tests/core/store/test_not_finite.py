"""NaN of a metric is told whatever it is called, and healthy runs are left alone: sixty names of
ten fields, and twenty runs whose metrics start late, pause, are rare, or are NaN by design.
"""

from __future__ import annotations

import json
import math

import pytest

from albor_core.store.watch.not_finite import MOST_NAMES, MOST_TOLD, NotFinite

NAN, INF = math.nan, math.inf
FIELDS = {
    "regression": "train/mse val/mse rmse val_mae r2 val/huber",
    "classification": "val/ce accuracy val_acc top5_error auc val/f1",
    "speech": "val/wer cer train/ctc_loss val/per mos val/stoi",
    "reinforcement": "rollout/ep_rew_mean train/value_loss episode_return eval/mean_reward "
    "train/approx_kl charts/episodic_length",
    "probabilistic": "nll elbo val/nll kl train/log_likelihood crps",
    "generation": "fid G/loss D(x) val/is kid clip_score",
    "retrieval": "val/ndcg@10 mrr recall@1 map val/hits contrastive",
    "language": "loss perplexity bits_per_char val/bleu rougeL objective",
    "vision": "psnr val/ssim lpips val/miou chamfer epe",
    "physics": "residual energy_mae val/force_rmse pde/boundary drag_err nmse",
}  # fmt: skip
NAMES = [name for names in FIELDS.values() for name in names.split()]


def told(lines, chosen=(), *, at_end=False):
    """Key -> the step that it is told to begin at, of the values of each step."""
    watch, found = NotFinite(chosen), {}
    for step, values in enumerate(lines, 1):
        found |= {one.key: one.step for one in watch.take(step, values) if not one.is_over}
    if at_end:
        found |= {one.key: one.step for one in watch.end()}
    return found


def test_there_are_sixty_names_of_ten_fields():
    assert len(FIELDS) == 10 and len({*NAMES}) == 60


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_sixty_names_that_become_nan_are_told_within_three_values(bad):
    for name in NAMES:
        lines = [{name: 1.0 / step} for step in range(1, 15)] + [{name: bad}] * 3
        assert told(lines) == {name: 15}, name


def test_sixty_names_of_one_run_that_become_nan_are_all_told():
    lines = [dict.fromkeys(NAMES, 1.0)] * 14 + [dict.fromkeys(NAMES, NAN)] * 3
    assert told(lines) == dict.fromkeys(NAMES, 15)


def test_sixty_names_beside_a_healthy_loss_are_told():
    for name in {*NAMES} - {"loss"}:
        lines = [{"train/loss": 1.0, name: 1.0}] * 14 + [{"train/loss": 1.0, name: NAN}] * 3
        assert told(lines) == {name: 15}, name


def test_a_run_that_ends_in_its_first_nan_is_told_at_its_end():
    for name in ("val/mse", "objective", "val/wer"):
        lines = [{"a": 1.0, "b": 1.0, "c": 1.0, name: 1.0}] * 4 + [{"a": 1.0, name: NAN}]
        assert told(lines, at_end=True) == {name: 5}, name


def test_what_has_a_goal_is_told_at_its_first_nan():
    lines = [{"x": 1.0, "y": 1.0, "zorp": 1.0}, {"x": 1.0, "y": 1.0, "zorp": NAN}]
    assert told(lines) == {}
    assert told(lines, ["zorp"]) == {"zorp": 2}


def base(steps, **more):
    """A healthy loss, and of each step what `more` says of it: None is not logged."""
    lines = []
    for step in range(1, steps + 1):
        own = {key.replace("__", "/"): of(step) for key, of in more.items()}
        lines.append({"train/loss": 2.0 / step, **{k: v for k, v in own.items() if v is not None}})
    return lines


def alone(steps, **more):
    return [{k: v for k, v in line.items() if k != "train/loss"} for line in base(steps, **more)]


HEALTHY = {
    "a validation that starts late": base(100, val__mse=lambda s: 1.0 if s > 60 else None),
    "a metric that pauses": base(100, val__wer=lambda s: None if 20 < s < 80 else 0.3),
    "a rare metric": base(200, val__fid=lambda s: 9.0 if s == 150 else None),
    "a reward before the first episode ends": alone(
        80, rollout__ep_rew_mean=lambda s: NAN if s < 50 else 1.0, time__fps=lambda s: 100.0
    ),
    "rewards of windows in which no episode ended": alone(
        200, episode_reward_mean=lambda s: NAN if s % 7 in (2, 3) else 5.0
    ),
    "a success rate that no episode has told of yet": base(60, success_rate=lambda s: NAN),
    "a class that is never there": base(
        50, **{f"val__iou__class_{n}": (lambda s, n=n: NAN if n == 7 else 0.5) for n in range(10)}
    ),
    "classes that are absent now and then": base(
        60,
        **{
            f"val__ap_{word}": (lambda s, n=n: NAN if (s + 2 * n) % 9 < 3 else 0.5)
            for n, word in enumerate(("cat", "dog", "cow", "car", "sky"))
        },
    ),
    "words of classes in a folder": base(
        60,
        **{
            f"val__recall__{word}": (lambda s, n=n: NAN if n == 1 and s > 20 else 0.5)
            for n, word in enumerate(("cat", "dog", "cow", "car", "sky"))
        },
    ),
    "a loss scaler that finds its scale": base(60, grad_norm=lambda s: INF if s < 9 else 1.0),
    "a loss scaler that grows now and then": base(
        300, grad_norm=lambda s: INF if s % 50 == 49 else 1.0
    ),
    "a perplexity too large at first": alone(60, ppl=lambda s: INF if s < 3 else 9.0),
    "a correlation of constant answers at first": base(
        60, val__pearson=lambda s: NAN if s < 3 else 0.2
    ),
    "a figure that is never measured": base(60, a=lambda s: 1.0, b=lambda s: 1.0, c=lambda s: NAN),
    "a settling time that is not known": base(60, a=lambda s: 1.0, eta_s=lambda s: NAN),
    "a side figure that is NaN now and then": base(
        120, a=lambda s: 1.0, b=lambda s: 1.0, ratio=lambda s: NAN if s % 10 == 0 else 1.0
    ),
    "per-layer figures of a layer that is frozen": base(
        60, **{f"layer{n}__snr": (lambda s, n=n: NAN if n == 0 else 1.0) for n in range(12)}
    ),
    "a loss for each class, one absent": base(
        60, **{f"loss_class_{n}": (lambda s, n=n: NAN if n == 3 else 1.0) for n in range(6)}
    ),
    "experts without tokens": base(
        60,
        **{
            f"moe__expert_{n}__entropy": (lambda s, n=n: NAN if (s + n) % 4 == 0 else 1.0)
            for n in range(8)
        },
    ),
    "a run that logs integers and texts of none": [{"epoch": 1, "flag": True, "loss": 1.0}] * 30,
}  # fmt: skip


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_run_is_left_alone(kind):
    assert len(HEALTHY) == 20
    assert told(HEALTHY[kind], at_end=True) == {}


def test_all_classes_that_become_nan_are_told():
    names = [f"val/iou/class_{n}" for n in range(10)]
    lines = [dict.fromkeys(names, 0.5)] * 9 + [dict.fromkeys(names, NAN)] * 3
    assert told(lines) == dict.fromkeys(names, 10)


def test_a_gradient_norm_that_stays_nan_is_told_though_the_loss_is_fine():
    lines = base(20, grad_norm=lambda s: 1.0 if s < 6 else NAN)
    assert told(lines) == {"grad_norm": 6}


def test_what_was_told_is_over_after_ten_finite_values_and_told_again_later():
    watch = NotFinite()
    said = []
    for step, value in enumerate([1.0, NAN, *[1.0] * 10, NAN], 1):
        said += [(one.step, one.is_over) for one in watch.take(step, {"val/mse": value})]
    assert said == [(2, False), (12, True), (13, False)]


def test_what_it_remembers_outlives_a_process():
    first = NotFinite()
    for step, value in enumerate([1.0, NAN, NAN], 1):
        assert not [*first.take(step, {"x": 1.0, "y": 1.0, "side": value})]
    second = NotFinite()
    second.load(json.loads(json.dumps(first.to_json())))
    (found,) = second.take(4, {"x": 1.0, "y": 1.0, "side": NAN})
    assert (found.key, found.step) == ("side", 2)


EPISODES = [
    "eval/return",
    "eval/success_rate",
    "rollout/ep_rew_mean",
    "episode/length",
    "episode_return",
    "reward_mean",
    "train/reward",
    "success_rate",
    "eval/mean_ep_length",
    "rollout/success_rate",
    "charts/episodic_return",
    "env/episode_reward",
    "val/reward",
    "returns",
]


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_one_value_of_episodes_that_is_no_number_is_told_once_it_was_one(bad):
    for name in EPISODES:
        lines = [{name: 1.0 / step, "time/fps": 9.0} for step in range(1, 20)] + [{name: bad}]
        assert told(lines) == {name: 20}, name
        late = [{"train/loss": 1.0, "a": 1.0, "b": 1.0, **line} for line in lines]
        assert told(late, [name]) == {name: 20}, f"{name} with a goal"
        assert told(late, at_end=True) == {name: 20}, f"{name} at the end"


def test_a_family_that_becomes_nan_as_a_whole_is_told_of_by_its_last_values():
    for names in (
        "reward_mean reward_std reward_min reward_max",
        "val/f1_cat val/f1_dog val/f1_cow val/f1_car",
    ):
        keys = names.split()
        fine = {"train/loss": 1.0, "a": 1.0, "b": 1.0, **dict.fromkeys(keys, 0.5)}
        lines = [fine] * 19 + [fine | dict.fromkeys(keys, NAN)]
        assert told(lines, at_end=True) == dict.fromkeys(keys, 20), names
        one = [fine] * 19 + [fine | {keys[0]: NAN}]
        assert told(one, at_end=True) == {}, "one of a family"


def test_a_goal_is_told_at_once_after_a_single_value_of_an_episode():
    lines = [{"train/loss": 1.0, "train/reward": value} for value in (1.0, NAN)]
    assert told(lines) == {}
    assert told(lines, ["train/reward"]) == {"train/reward": 2}
    classes = [{f"val/iou/class_{n}": 0.5 if step < 5 or n else NAN for n in range(8)}
               for step in range(1, 7)]  # fmt: skip
    assert told(classes, ["val/iou/class_0"]) == {"val/iou/class_0": 5}


def test_episodes_of_which_none_ended_yet_are_quiet_to_the_end():
    for name in EPISODES:
        lines = [{"train/loss": 1.0, name: NAN}] * 30
        assert told(lines, [name], at_end=True) == told(lines, at_end=True) == {}, name


def beside_whole(whole, part, others=()):
    named = {f"val/{one}": 0.4 for one in (whole, *others) if one}
    return [line for _ in range(15) for line in (
        *[{"train/loss": 1.0}] * 20, {**named, f"val/{part}": NAN})]  # fmt: skip


def test_a_part_that_is_absent_beside_its_whole_or_its_siblings_is_left_alone():
    for whole, part in (
        *(("AP", one) for one in ("AP_small", "APs", "AP-person", "AP/small", "small_AP")),
        *(("recall", "recall_rare"), ("f1", "f1.sky"), ("mAP", "mAP_small"), ("wer", "wer_noisy")),
        *(("AR@100", "AR@100_small"), ("acc", "acc_minority"), ("auroc", "auroc_group_b")),
    ):
        assert told(beside_whole(whole, part), at_end=True) == {}, part
    assert told(beside_whole("", "AP_small", ["AP_large"]), at_end=True) == {}
    assert told(beside_whole("AP", "AP_small", ["AP_large"]), ["val/AP_small"], at_end=True) == {
        "val/AP_small": 21
    }


def test_a_whole_that_is_no_number_is_told_whatever_its_parts_are():
    lines = beside_whole("", "AP", ["AP_small", "AP_large"])
    assert told(lines, at_end=True) == {"val/AP": 21}
    lines = [{"acc": 0.5, "acc_val": NAN}] * 30
    assert told(lines, at_end=True) == {"acc_val": 1}, "other data are no part"


def test_nan_of_the_gradient_beside_a_loss_of_exactly_zero_is_told_at_once():
    assert told([{"train/loss": 0.0, "grad_norm": NAN}] * 2) == {"grad_norm": 1}
    lines = [*base(9, grad_norm=lambda s: 1.0), {"train/loss": 0.0, "train/grad_norm": NAN}]
    assert told(lines) == {"train/grad_norm": 10}
    assert told([{"train/loss": 0.0, "grad_norm": INF}] * 2) == {}


@pytest.mark.slow
def test_twelve_thousand_names_and_more_are_bounded():
    watch = NotFinite()
    names = [f"m{n}/x" for n in range(MOST_NAMES + 100)]
    assert not [*watch.take(1, dict.fromkeys(names, 1.0))]
    assert len(watch._seen) == MOST_NAMES
    assert MOST_TOLD == 64
