"""NaN of sixty more names of ten fields is told within five seconds of its line, however slow the
run is, and twenty-two more healthy runs are left alone at any pace. Virtual time: no test waits.
"""

from __future__ import annotations

import math

import pytest

from albor_core.store.watch.built_in import BuiltIn
from albor_core.store.watch.not_finite import NotFinite

NAN, INF = math.nan, math.inf
TOLD_S, LOOK_S = 5.0, 1.0  # the bar, and how often the index process looks
FIELDS = {
    "language": "nll_per_token val/bpb perplexity/wiki z_penalty logits_max token_accuracy",
    "classification": "acc@1 val_top5 mAP_50 dice_fg iou.background focal",
    "reinforcement": "rollout/ep_rew_mean train/approx_kl train/explained_variance q_values/max "
    "td_err entropy_coef",
    "speech": "val_wer cer_ctc pesq_nb stoi si_sdr mel_l1",
    "retrieval": "ndcg@10 mrr recall_at_100 hits@1 map@1000 coverage",
    "generation": "fid50k inception elbo kl/prior bits_per_dim d_real",
    "fairness": "dp_gap eo_ratio worst_group ece brier auc_roc_subgroup",
    "forecasting": "val/mse mape r2 crps smape pinball_0.9",
    "science": "energy_mae forces_rmse pde_residual rmsd lddt grad_penalty",
    "preferences": "rewards/margins objective/entropy grad_norm update_ratio param_rms "
    "logps/chosen",
}  # fmt: skip
NAMES = [name for names in FIELDS.values() for name in names.split()]
WAITS = {"rollout/ep_rew_mean", "grad_norm"}  # three in a row, whatever the pace


def told(lines, pace, *, at_end=True):
    """Key -> when it was told, of a run that logs a line each `pace` seconds and then stands."""
    watch, found = BuiltIn(), {}

    def take(troubles, wall):
        found.update({one.metric: wall for one in troubles if not one.is_over})

    for n, values in enumerate(lines):
        begin = n * pace
        take(watch.take_step(values, begin, n), begin)
        wall = begin
        while (wall := wall + LOOK_S) < begin + min(pace, 2 * TOLD_S):
            take(watch.wait(wall), wall)
    if at_end:
        take(watch.finish(), len(lines) * pace)
    return found


def beside(name, count, bad):
    return [{"train/loss": 1.0 / n, name: 1.0 / n} for n in range(1, 15)] + [
        {"train/loss": 0.05, name: bad}
    ] * count


def test_there_are_sixty_names_of_ten_fields_that_no_other_test_has():
    assert len(FIELDS) == 10 and len({*NAMES}) == 60


@pytest.mark.parametrize("pace", [0.1, 1.0, 30.0, 600.0])
@pytest.mark.parametrize("bad", [NAN, INF])
def test_sixty_names_are_told_within_five_seconds(pace, bad):
    late = {}
    for name in NAMES:
        lines = beside(name, 3, bad)
        found = told(lines, pace, at_end=False)
        if set(found) != {name} or found[name] - 14 * pace >= TOLD_S:
            late[name] = found
    assert set(late) == (WAITS if pace > 2 else set())


@pytest.mark.parametrize("pace", [0.1, 30.0])
def test_sixty_names_of_one_run_are_all_told_by_name(pace):
    lines = [dict.fromkeys(NAMES, 1.0)] * 14 + [dict.fromkeys(NAMES, NAN)] * 3
    assert set(told(lines, pace)) == {*NAMES}


def test_a_run_that_ended_since_is_told_of_all_that_it_ended_in():
    for name in {*NAMES} - WAITS:
        assert set(told(beside(name, 1, NAN), 0.1)) == {name}, name


def test_a_history_that_is_read_at_once_is_told_of_as_a_run_that_was_watched():
    """`side` was NaN for half a minute, between two lines of others."""
    lines = [{"a": 1.0, "b": 1.0, "side": 1.0}] * 9 + [{"side": NAN}, {"a": 1.0}, {"side": 1.0}]
    watched, read = told(lines, 30.0), BuiltIn()
    found = [one.metric for n, line in enumerate(lines) for one in read.take_step(line, 30.0 * n)]
    assert [*watched] == found == ["side"]
    fast = BuiltIn()
    assert not [one for n, line in enumerate(lines) for one in fast.take_step(line, 0.1 * n)]


def test_a_mean_of_errors_that_never_was_a_number_is_told_at_once():
    for name in ("val/mse", "nll", "elbo", "pde_residual", "energy_mae", "val_ce", "loss"):
        assert set(told([{name: NAN}], 60.0, at_end=False)) == {name}, name
        late = [{"train/loss": 1.0}] * 5 + [{name: NAN}]
        assert name == "loss" or set(told(late, 60.0, at_end=False)) == {name}, name


def test_validation_that_never_was_a_number_is_told_at_the_end_of_the_run():
    lines = [{"train/loss": 1.0, "val/mse": NAN, "side": 1.0}] * 9
    assert told(lines, 1.0, at_end=False) == {}
    assert set(told(lines, 1.0)) == {"val/mse"}


def runs(steps, **more):
    """A healthy loss, and of each step what `more` says of it: None is not logged."""
    lines = []
    for step in range(1, steps + 1):
        own = {key.replace("__", "/"): of(step) for key, of in more.items()}
        lines.append({"train/loss": 2.0 / step, **{k: v for k, v in own.items() if v is not None}})
    return lines


HEALTHY = {
    "an area under a curve before both classes were seen": runs(
        80, val__auroc=lambda s: None if s % 10 else NAN if s < 50 else 0.7
    ),
    "a learner whose first episodes are long": [
        {"episode_reward_mean": NAN if n < 30 else 5.0, "episode_len_mean": NAN if n < 30 else 9.0,
         "timesteps_total": n, "info/learner/vf_loss": 1.0 / (n + 1)} for n in range(60)
    ],
    "an explained variance of returns that are all equal": runs(
        50, train__explained_variance=lambda s: NAN if s < 4 else 0.3
    ),
    "four correlations of answers that are constant at first": runs(
        60, **{f"val__{one}": (lambda s: NAN if s < 9 else 0.5)
               for one in ("pearson", "spearman", "kendall", "mcc")}
    ),
    "validation figures that fill their place until there are some": runs(
        300, val_loss=lambda s: NAN if s % 50 else 1.0, val_acc=lambda s: NAN if s % 50 else 0.5
    ),
    "the same where the first line has a value": runs(
        300, val_loss=lambda s: 1.0 if s % 50 == 1 else NAN
    ),
    "validation that fills its place and goes on with each line": runs(
        300, val_loss=lambda s: NAN if s < 100 else 1.0 / s
    ),
    "the best until now before there is one": runs(
        60, best_loss=lambda s: INF if s < 20 else 1.0, best_acc=lambda s: -INF if s < 20 else 0.5
    ),
    "a loss scaler that finds its scale, and then grows now and then": runs(
        400, grad_norm=lambda s: INF if s < 6 or s % 100 == 0 else 1.0,
        loss_scale=lambda s: 65536.0
    ),
    "a loss scaler that meets NaN": runs(400, grad_norm=lambda s: NAN if s % 90 == 5 else 1.0),
    "a deviation of one sample": runs(50, reward_std=lambda s: NAN if s < 3 else 0.2,
                                      val__score_std=lambda s: NAN if s < 3 else 0.2),
    "a perplexity that is too large for a number": [
        {"ppl": INF if n < 2 else 1e6 / n, "lr": 1e-3} for n in range(40)
    ],
    "an end that is not known yet, and a rate of no time": runs(
        60, eta_seconds=lambda s: INF if s < 3 or s % 20 == 0 else 60.0 - s,
        tokens_per_s=lambda s: INF if s in (1, 30) else 1e4
    ),
    "a share of the explained of one sample beside errors": [
        {"val/mse": 1.0 / (n + 1), "val/r2": NAN if n < 2 else 0.4} for n in range(30)
    ],
    "figures of tasks that are visited late": runs(
        90, **{f"eval__{word}__return": (lambda s, n=n: NAN if s < 20 * n else 3.0)
               for n, word in enumerate(("push", "pick", "door", "reach"))}
    ),
    "classes that a batch has or has not": runs(
        120, **{f"val__f1_{word}": (lambda s, n=n: NAN if (s + 3 * n) % 11 < 4 else 0.5)
                for n, word in enumerate(("cat", "dog", "cow", "car", "sky", "sea"))}
    ),
    "a precision for each of eighty classes, a third of them never there": runs(
        30, **{f"metrics__ap__{n}": (lambda s, n=n: NAN if n % 3 == 0 else 0.4) for n in range(80)}
    ),
    "a validation that pauses for hours": runs(
        200, val__wer=lambda s: 0.3 if s < 10 or s > 190 else None
    ),
    "what is logged once": runs(100, test__fid=lambda s: 9.0 if s == 100 else None,
                                note=lambda s: 1.0 if s == 3 else None),
    "two optimizers by turns": [
        {"d/loss": 1.0, "d/real": 0.5} if n % 2 else {"g/loss": 2.0, "g/div": 0.1}
        for n in range(80)
    ],
    "experts that get no tokens": runs(
        80, **{f"moe__load_{n}": (lambda s, n=n: NAN if (s * 7 + n) % 5 == 0 else 0.1)
               for n in range(16)}
    ),
    "counts, flags and zeros": [
        {"step": n, "ok": True, "loss": 0.0, "epoch": 0, "val_acc": -0.0} for n in range(40)
    ],
}  # fmt: skip


@pytest.mark.parametrize("pace", [0.05, 20.0])
@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_run_is_left_alone_at_any_pace(kind, pace):
    assert len(HEALTHY) >= 20
    assert told(HEALTHY[kind], pace) == {}


def test_what_waits_for_its_time_outlives_a_process():
    first = NotFinite()
    for n, values in enumerate(beside("zorp", 1, NAN)):
        assert not [*first.take(n, {"a": 1.0, **values}, float(n))]
    second = NotFinite()
    second.load(first.to_json())
    assert not [*second.wait(15.0)]
    assert [(one.key, one.step) for one in second.wait(17.0)] == [("zorp", 14)]
    assert not [*second.wait(30.0)]
