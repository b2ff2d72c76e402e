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


def names_of(text):
    """Words, where `~` stands for a blank in a name."""
    return [word.replace("~", " ") for word in text.split()]


LOWER = words("""
    loss train/loss val_loss evalLoss Loss/train nll val/nll ce cross_entropy ppl perplexity val/bpb
    bpc bits_per_byte mse val/MSE mae rmse mape wer cer eer fid error top5_error eval_runtime
    latency_ms eval_s train_seconds peak_memory_bytes logloss brier_score regret ece hamming_loss
    negative_log_likelihood
""")
HIGHER = words("""
    acc Accuracy/val top1_acc f1_score macro_f1 precision recall auc roc_auc mAP mAP50 bleu rougeL
    reward/mean episode_return win_rate mfu throughput tokens_per_s eval_samples_per_second
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


# field: (its source, those that are better low, better high, and those that have no side)
FIELDS = {
    "language": ("lm-evaluation-harness, sacrebleu, rouge_score", """
        word_perplexity byte_perplexity bits_per_byte ter val_nll eval/log_loss""", """
        acc_norm exact_match bleu chrf rouge_l rouge1 meteor bertscore_f1 acc,none mauve
        pass@10 maj@8""", "bleu_drop perplexity_ratio length_ratio hallucination_score"),
    "vision": ("torchvision, pycocotools, torchmetrics.detection", """
        top5_error top-1_error val/loss_bbox_loss epe""", """
        mAP_50_95 mAP@0.5 miou mean_iou box_iou panoptic_quality pq mota idf1 hota top1_acc
        pixel_accuracy test/acc1 AP50""", "box_count attention_map feature_map"),
    "speech": ("torchmetrics.audio, pyannote.metrics, jiwer", """
        val_wer cer word_error_rate diarization_error_rate der eer min_dcf mcd mer""", """
        pesq stoi si_sdr SI-SNR utmos sdr""", "duration_ratio speaker_similarity pitch_shift"),
    "retrieval": ("torchmetrics.retrieval, ranx, BEIR", "ranking_loss miss_rate", """
        ndcg@10 NDCG@5 mrr mrr@10 recall@100 precision@5 hits@3 hit_rate@10 map@100
        mean_reciprocal_rank ndcg_cut_10 R@1 average_precision""", "catalog_size novelty_rate"),
    "reinforcement": ("Stable-Baselines3, CleanRL, TRL", "train/value_loss critic_loss regret", """
        rollout/ep_rew_mean charts/episodic_return rollout/success_rate eval/mean_reward
        train/explained_variance reward rewards/accuracies win_rate""", """
        rewards/rejected rewards/chosen rewards/margins train/approx_kl train/clip_fraction entropy
        train/entropy_loss objective/kl train/policy_gradient_loss kl reward_std rollout/ep_len_mean
        train/clip_range losses/policy_loss reward_margin target_reward"""),
    "fairness": ("fairlearn", "demographic_parity_difference equalized_odds_difference", """
        demographic_parity_ratio equalized_odds_ratio""", """
        disparate_impact bias_score toxicity_score accuracy_gap tpr_gap"""),
    "calibration": ("torchmetrics CalibrationError", """
        ece mce expected_calibration_error brier_score val/brier nll""", "", """
        confidence uncertainty temperature entropy_mean"""),
    "generation": ("torchmetrics.image, pytorch-fid", "fid kid fvd lpips test/FID niqe", """
        psnr ssim ms_ssim val/ms_ssim MS-SSIM inception_score clip_score""", """
        aesthetic d_loss g_loss diversity gan_loss"""),
    "forecasting": ("sktime, GluonTS, sklearn.metrics", """
        mase smape mape crps rmse val_rmse mean_absolute_error wape msle pinball_loss
        root_mean_squared_error""", """
        r2 r2_score explained_variance neg_mean_squared_error pearson spearmanr
        neg_mean_absolute_error""", "coverage bias forecast_horizon"),
    "classification": ("sklearn.metrics, torchmetrics.classification", """
        log_loss hamming_loss error_rate fpr fnr fpr_at_95_tpr false_positive_rate""", """
        f1_macro macro_f1 roc_auc pr_auc val_auc mcc cohen_kappa balanced_accuracy specificity
        tpr_at_fpr valAccuracy test_f1_epoch sparse_categorical_accuracy""", """
        positive_rate support threshold accuracy_drop loss_recovered dropout_rate"""),
    "medical": ("MONAI", "hd95 hausdorff_distance assd 1-ssim", "dice dice_score val_mean_dice", """
        lesion_volume volume_ratio"""),
    "cost": ("PaLM appendix B, Stable-Baselines3", "latency_p99_ms eval_runtime step_time", """
        mfu throughput tokens_per_s train_samples_per_second""", """
        cost_per_hour dropped_tokens_per_s errors_per_s memory_saved time_saved score rate ratio
        similarity skill delta"""),
}  # fmt: skip
NONSENSE = words("""
    zorp quux_level val/blorp_rate flux_index gizmo_score eval/wobble snark_similarity frob_ratio
    norp_delta twiddle val_plugh xyzzy_skill thud/mean grault_per_hour garply_count waldo_coef
    fredness corge_map val/zib_em plover_success mimsy_distance borogove_gain tove_norm rath_shift
    slithy_gyre outgrabe jubjub_level bander_snatch frumious vorpal_edge
""")
TURNED = words("""
    accuracy_gap accuracy_drop f1_diff loss_gap loss_recovered loss_ratio perplexity_ratio
    error_reduction bleu_drop reward_margin rewards/rejected cost_accuracy accuracy_cost
    toxicity_score bias_score hallucination_score unsafe_rate attack_success_rate refusal_rate
    dropped_tokens_per_s failed_requests_per_s latency_saved memory_saved free_memory
    error_uncertainty auc_variance loss_std accuracy_std toxicity/accuracy loss_weight
    reward_scale accuracy_threshold adversarial_accuracy_gap mia_auc backdoor_accuracy
    membership_inference_auc 1-loss loss_accuracy Loss/accuracy cost_per_hour score_per_s
""")


def test_a_hundred_and_fifty_names_of_twelve_fields_are_never_the_wrong_way():
    known = total = 0
    for field, (source, low, high, none) in FIELDS.items():
        assert source
        for way, names in (("min", low), ("max", high), (None, none)):
            wanted = dict.fromkeys(words(names), way)
            assert {name: direction(name) for name in wanted} == wanted, field
            total += len(wanted)
            known += len(wanted) if way else 0
    assert total >= 150 and known >= 100


def test_thirty_names_that_were_made_up_have_no_direction():
    assert len(NONSENSE) == 30
    assert {name: direction(name) for name in NONSENSE} == dict.fromkeys(NONSENSE)


def test_a_word_that_turns_a_figure_leaves_it_without_a_direction():
    assert {name: direction(name) for name in TURNED} == dict.fromkeys(TURNED)


# kind: names that a known word ends, and that say something else than the word
SAY_OTHERWISE = {
    "under attack": """
        red_team/success red-team/success_rate redteam/pass_rate advbench/success_rate
        harmbench/success harmbench/gcg/success_rate jailbreakbench/success pgd/success_rate
        pgd_success fgsm/success autoattack/success_rate textfooler/success_rate wmdp/acc
        strongreject/asr agentdojo/success_rate trojan/accuracy""",
    "memorised": """
        memorisation/exact_match memorization/exact_match canary/exact_match verbatim/rougeL
        memorized_acc extracted/exact_match regurgitation/bleu canaries/recall copyright/rouge_l
        pii/recall""",
    "of a constraint": """
        constraint/return constraints/reward constraint_return violation/return hazard/reward
        collisions/success lagrangian/reward unsafe/return""",
    "turned round": """
        100-acc 100-wer 1/mse -mse -loss val/-mse val/100-wer 100~-~acc 1-val_loss 1/ppl 1_ssim
        exp(-loss) (1-nll) 1-wer acc-loss acc*-1 mse^-1 0-loss reciprocal_mse negated_loss
        -1*mse \u2212mse 1.0-mse 100%-acc""",
    "counts": """
        acc_samples eval/loss/n n_loss loss_n n_errors num_errors errors_total loss_count
        loss/count acc_total acc/n wer_n n_acc nb_errors cnt_loss #errors acc/total
        acc/samples accuracy_samples count/acc acc_cnt psnr_n acc_sum""",
    "read as more or as less": "motp max_drawdown val/max_drawdown MOTP relative_volume_error",
}
STAY_KNOWN = {
    "max": """
        success_rate libero/success_rate metaworld/push-v2/success top_n_accuracy f1_samples
        precision_samples 5-shot-acc 1-shot~accuracy top-1~acc fold/0/acc 0/acc mmlu/5-shot/acc
        reward/total total_reward rouge_sum hits@10 rouge-1 1-nn~accuracy""",
    "min": """
        loss/total loss_total total_loss total_error val-loss 1-ssim val/1-acc 1-best~wer 2-gram~ppl
        client/1/loss 1-val_acc 1~-~ssim eval_time/total""",
}


@pytest.mark.parametrize("kind", SAY_OTHERWISE)
def test_an_attack_a_memory_a_constraint_a_sum_or_a_count_leaves_no_direction(kind):
    wanted = dict.fromkeys(names_of(SAY_OTHERWISE[kind]))
    assert {name: direction(name) for name in wanted} == wanted


def test_names_beside_those_of_attacks_sums_and_counts_keep_their_direction():
    for way, names in STAY_KNOWN.items():
        wanted = dict.fromkeys(names_of(names), way)
        assert {name: direction(name) for name in wanted} == wanted


# framework: what it logs that is better low, better high, and has no side
LOGGED_BY = {
    "lm-evaluation-harness": ("lambada_openai/perplexity,none pile_10k/bits_per_byte,none", """
        gsm8k/exact_match,strict-match gsm8k/exact_match,flexible-extract humaneval/pass@1
        humaneval/pass@1,create_test mbpp/pass_at_1,none hellaswag/acc_norm,none coqa/em,none
        ifeval/prompt_level_strict_acc,none bbh/exact_match,get-answer""", """
        mmlu_stem/acc_stderr,none truthfulqa_gen/bleu_diff,none bigbench/score,none
        crows_pairs_english/pct_stereotype,none"""),
    "PyTorch Lightning": ("val/loss/dataloader_idx_0 val_loss/dataloader_idx_12", """
        val_acc/dataloader_idx_1""", "val/zorp/dataloader_idx_0"),
    "tqdm and progress bars": ("s/it ms/step train/sec/batch", """
        tokens/sec it/s samples/s train/images/sec steps/second perf/tok/s""", """
        errors/s dropped_requests/s km/h dropped_tokens/sec"""),
    "torchmetrics": ("""
        val/kl_divergence KLDivergence WordInfoLost LearnedPerceptualImagePatchSimilarity
        MultilabelCoverageError""", """
        pesq_wb pesq_nb val/dice_coef DiceScore StructuralSimilarityIndexMeasure RetrievalMRR
        ScaleInvariantSignalDistortionRatio MulticlassMatthewsCorrCoef""", """
        CosineSimilarity MeanMetric TotalVariation"""),
    "sklearn.metrics": ("", """
        neg_log_loss neg_brier_score roc_auc_ovr roc_auc_ovo_weighted f1_samples
        d2_absolute_error_score top_k_accuracy mutual_info_score""", """
        std_test_score rank_test_score mean_test_score positive_likelihood_ratio"""),
    "variational models": ("neg_elbo val/negative_elbo nelbo neg_log_likelihood", "elbo test_elbo",
        "neg_reward elbo_gap kl_weight"),
    "MMDetection, mmsegmentation": ("""
        loss_rpn_cls loss_giou s0.loss_bbox decode.loss_ce d0.loss_cls loss_dfl""", """
        coco/bbox_mAP_50 pascal_voc/mAP aAcc mIoU""", "loss_accuracy loss_std grad_norm"),
    "ESPnet, NeMo, fairseq": ("valid/cer_ctc loss_ctc loss_att reduced_train_loss val_wer", """
        acc_ctc valid/accuracy val_sacreBLEU val_acc_micro_top_1""", """
        train/gnorm train/code_perplexity train/prob_perplexity train/wpb consumed_samples"""),
    "ragas, HELM": ("noise_sensitivity ece_10_bin", """
        answer_relevancy context_precision context_recall factual_correctness RR@10
        quasi_exact_match""", "semantic_similarity aspect_critic toxic_frac num_completions"),
    "RLlib, Stable-Baselines3, TRL": ("train/value_loss", """
        env_runners/episode_return_mean episode_reward_max episode_reward_min
        eval_rewards/accuracies objective/rlhf_reward""", """
        learners/default_policy/policy_loss train/clip_fraction rollout/exploration_rate
        frac_reward_zero_std objective/non_score_reward"""),
    "StyleGAN, RAFT": ("Metrics/fid50k_full chairs_epe sintel_clean_epe", "", "Loss/scores/fake"),
    "structures, optical flow, aggregates": ("rmsd_mean error_mean_epoch", """
        tm_score lddt inception_score_mean dice_score_mean_epoch val/f1_score_best""", """
        kitti-f1 kitti_flow_f1"""),
    "caches, labels, codebooks": ("self_bleu label_error_rate packet_loss cache_miss_rate", """
        kv_cache_hit_rate prefix_cache_hit_rate""", """
        codebook_perplexity vq/perplexity router_perplexity mixed_precision profit_loss stop_loss
        domain_accuracy deletion_auc trigger_accuracy injection_success_rate
        collision_rate tracking_error attack_pass@1"""),
}  # fmt: skip


@pytest.mark.parametrize("framework", LOGGED_BY)
def test_names_as_frameworks_log_them_are_known_or_have_no_side(framework):
    for way, names in zip(("min", "max", None), LOGGED_BY[framework], strict=True):
        wanted = dict.fromkeys(words(names), way)
        assert {name: direction(name) for name in wanted} == wanted


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
