"""Which way metrics are better: what a practitioner would say of their names, and what runs say."""

from __future__ import annotations

import pytest

from albor_core.run.errors import UsageError
from albor_core.run.values.directions import (
    check_goals,
    direction,
    is_about_model,
    is_background,
    is_reward,
    is_validation,
    parse_goals,
    recorded_goals,
)


def words(text):
    return text.split()


LOWER = words("""
    loss train/loss val_loss evalLoss Loss/train nll val/nll ce cross_entropy ppl perplexity val/bpb
    bpc bits_per_byte mse val/MSE mae rmse mape wer cer eer fid kl error top5_error eval_runtime
    latency_ms eval_s train_seconds peak_memory_bytes logloss brier_score regret ece hamming_loss
    negative_log_likelihood
""")
HIGHER = words("""
    acc Accuracy/val top1_acc f1_score macro_f1 precision recall auc roc_auc mAP mAP50 bleu rougeL
    reward/mean episode_return score win_rate mfu throughput tokens_per_s eval_samples_per_second
    iou mIoU dice R2 psnr ssim pass@1 exact_match neg_mean_squared_error
    rollout/ep_rew_mean charts/episodic_return train/explained_variance hit_rate@10
""")
MADE_UP = words("""
    zorp val/quux flux_capacitance gizmo_count blorp_ratio n_widgets optim/lr grad_norm loss_scale
    reward_std
""")


def test_forty_names_and_more_have_the_direction_a_practitioner_would_give():
    assert len(LOWER) + len(HIGHER) >= 40
    assert {name: direction(name) for name in LOWER} == dict.fromkeys(LOWER, "min")
    assert {name: direction(name) for name in HIGHER} == dict.fromkeys(HIGHER, "max")


def test_ten_names_that_say_nothing_have_no_direction():
    assert len(MADE_UP) == 10
    assert {name: direction(name) for name in MADE_UP} == dict.fromkeys(MADE_UP)


def test_a_declared_goal_wins_over_the_name():
    goals = parse_goals(["zorp:min", "val/loss:max", "loss:max"])
    assert goals == {"zorp": "min", "val/loss": "max", "train/loss": "max"}  # as it is recorded
    assert (direction("zorp", goals), direction("val/loss", goals)) == ("min", "max")
    assert direction("val/quux", goals) is None


@pytest.mark.parametrize("text", ["", "wer", "wer:", ":min", "wer:down", "wer min", "wer:MIN"])
def test_a_goal_that_is_none_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="is not a goal") as caught:
        parse_goals([text])
    assert "--goal wer:min" in caught.value.hint


def test_both_ways_at_once_are_refused():
    with pytest.raises(UsageError, match="both goals for 'wer'"):
        parse_goals(["wer:min", "wer:max"])


@pytest.mark.parametrize("goals", ["wer:min", ["wer"], {"wer": "down"}, {"wer": 1}, {3: "min"},
                                   {"": "min"}, {"x" * 300: "min"}])  # fmt: skip
def test_goals_of_a_program_that_are_none_are_refused(goals):
    with pytest.raises(UsageError):
        check_goals(goals)


def test_goals_in_a_file_that_holds_anything_are_read_as_far_as_they_are_goals():
    found = {"wer": "min", "x": "up", "": "max", "y" * 300: "max", "z": None}
    assert recorded_goals(found) == {"wer": "min"}
    assert recorded_goals([1]) == recorded_goals(None) == {}


VALIDATION = words("""
    val_accuracy eval/accuracy eval_f1 Accuracy/test test_acc Loss/test val/top5_error valid/mAP
    eval/hellaswag dev_bleu
""")
BACKGROUND = words("""
    lr optim/lr lr-Adam charts/learning_rate epoch train/epoch global_step time/iterations time/fps
    time/total_timesteps perf/tokens_per_s eval_runtime eval_samples_per_second gpu0/power_w
    host/cpu_percent program/threads program/rss_bytes brick/data_ms
    system/gpu.0.memory num_tokens charts/SPS _timestamp _runtime
    optim/grad_norm
""")
MODEL = words("""
    accuracy f1 auc logloss train/loss train/value_loss rollout/ep_rew_mean episode_reward
    Accuracy/train
""")


def test_what_is_measured_on_other_data_is_known_by_its_name():
    assert {name: is_validation(name) for name in VALIDATION} == dict.fromkeys(VALIDATION, True)
    assert not any(map(is_validation, BACKGROUND + MODEL))


def test_clocks_counters_settings_and_the_machine_say_nothing_about_the_model():
    assert {name: is_background(name) for name in BACKGROUND} == dict.fromkeys(BACKGROUND, True)
    assert not any(map(is_about_model, BACKGROUND))
    assert {name: is_about_model(name) for name in MODEL} == dict.fromkeys(MODEL, True)


def test_a_learner_from_rewards_is_known_by_its_rewards():
    assert all(map(is_reward, ["rollout/ep_rew_mean", "episode_reward", "charts/episodic_return"]))
    assert not any(map(is_reward, ["train/loss", "reward_std", "time/reward_seconds"]))
