"""Names of metrics whose better side is known, by field, each group with where it is defined.

A line is a name in whole lower-case words. Those of `LOOSE` decide behind any word that turns
nothing (`node_accuracy`); all others only where no other word than `NEUTRAL` stands with them.
"""

from __future__ import annotations

from typing import Literal


def word_set(text: str) -> frozenset[str]:
    """The words of a table."""
    return frozenset(text.split())


SPEEDS = word_set("mfu hfu throughput tps qps fps sps")
_MIN: tuple[str, ...] = (
    # torch.nn losses, PyTorch Lightning and Keras logs, transformers.Trainer
    "loss|losses|logloss|log loss|nll|nll loss|ce|bce|xent|crossentropy|cross entropy|hinge loss",
    "huber loss|negative log likelihood|value loss|critic loss|mlm loss|lm loss|objective loss",
    # language models: Hugging Face evaluate (perplexity), lm-evaluation-harness (bits_per_byte)
    "ppl|perplexity|word perplexity|byte perplexity|bpb|bpc|bpw|bits per byte|bits per char",
    "bits per character|bits per word|bits per dim|bpd",
    # torchmetrics.text: WordErrorRate, CharErrorRate, MatchErrorRate, TranslationEditRate, EED
    "wer|cer|mer|ter|wil|word error rate|char error rate|character error rate|edit distance",
    "match error rate|translation edit rate|word information lost|extended edit distance",
    "levenshtein distance|token error rate|phoneme error rate|per phoneme error rate",
    # regression and forecasting: sklearn.metrics, torchmetrics.regression, sktime, GluonTS
    "mse|mae|rmse|msle|rmsle|nrmse|mape|smape|mase|rmsse|wape|wmape|mdae|medae|crps|mean error",
    "mean squared error|mean absolute error|root mean squared error|mean squared log error",
    "root mean square error|mean absolute percentage error|median absolute error|squared error",
    "symmetric mean absolute percentage error|mean absolute scaled error|max error",
    "absolute error",
    "mean squared logarithmic error|pinball loss|quantile loss",
    "weighted quantile loss|winkler score",
    "continuous ranked probability score|energy score|mean pinball loss|mean poisson deviance",
    "mean gamma deviance|mean tweedie deviance|interval score",
    # classification: sklearn.metrics, torchmetrics.classification
    "error|errors|err|error rate|classification error|misclassification rate|false positive rate",
    "false negative rate|false discovery rate|miss rate|zero one loss|hamming loss|fpr|fnr",
    "top1 error|top5 error|top 1 error|top 5 error|coverage error|label ranking loss",
    "ranking loss",
    # calibration: torchmetrics CalibrationError, netcal
    "ece|mce|ace|brier|brier score|expected calibration error|maximum calibration error",
    "calibration error|adaptive calibration error|static calibration error|brier score loss",
    # speech: pyannote.metrics, NIST SRE, pymcd
    "eer|equal error rate|min dcf|mindcf|der|diarization error rate|jaccard error rate|mcd",
    "mel cepstral distortion|hter|far|frr|false acceptance rate|false rejection rate",
    "detcurve cost",
    "false alarm rate|f0 rmse|spectral convergence",
    # image and video generation: torchmetrics.image, pytorch-fid, cleanfid, FVD
    "fid|kid|fvd|fad|lpips|dists|frechet inception distance",
    "kernel inception distance|niqe|brisque",
    "frechet video distance|frechet audio distance|ergas|sam spectral angle|piqe",
    "perceptual path length|spectral angle mapper|fid score|kernel audio distance",
    # geometry, depth, flow, pose: KITTI, NYU, Open3D, MPII
    "epe|end point error|endpoint error|chamfer distance|chamfer|abs rel|absrel|ade|fde|mpjpe",
    "average displacement error|final displacement error|reprojection error|rpe|ate|pa mpjpe",
    "rotation error|translation error|absolute trajectory error|relative pose error|sq rel",
    # medical segmentation: MONAI HausdorffDistanceMetric, SurfaceDistanceMetric
    "hausdorff|hausdorff distance|hd95|assd|asd|average surface distance|masd|hausdorff 95",
    "average symmetric surface distance|hausdorff distance 95",
    # fairness: fairlearn, AIF360
    "demographic parity difference|equalized odds difference|equal opportunity difference",
    # clustering: sklearn.metrics davies_bouldin_score
    "davies bouldin|davies bouldin score|davies bouldin index",
    # optimisation and bandits: BoTorch
    "regret|cumulative regret|simple regret|optimality gap",
    # structures, risk: CASP, empyrical
    "rmsd|jer",
    # questions and answers: ragas; use of a codebook and diversity: Texygen
    "noise sensitivity|self bleu|pairwise bleu|hallucination rate",
    # torchmetrics and sklearn.metrics, by the names of their classes and functions
    "learned perceptual image patch similarity|word info lost|fall out|fallout|log cosh error",
    "tweedie deviance score|relative squared error|minkowski distance|ece 1 bin|ece 10 bin|logcosh",
    "negative likelihood ratio|nmse|normalized mean squared error|nelbo|negative elbo|loss epoch",
    "kullback leibler divergence|kl divergence|hinge|root mean squared log error|squared hinge",
    # divergences of two distributions that are compared: scipy.stats, torchmetrics
    "wasserstein distance|emd|earth mover distance|earth movers distance|jsd|mmd",
    "maximum mean discrepancy",
    "jensen shannon divergence|total variation distance",
)
_MAX: tuple[str, ...] = (
    # classification: sklearn.metrics, torchmetrics.classification, Keras
    "acc|accuracy|accuracies|balanced accuracy|binary accuracy|categorical accuracy|top1|top5",
    "top1 acc|top5 acc|sparse categorical accuracy|f1|f2|fbeta|f1 score|f2 score|f score|fscore",
    "f measure|fmeasure|precision|recall|sensitivity|specificity|tpr|tnr|ppv|npv|hit rate",
    "true positive rate|true negative rate|positive predictive value|negative predictive value",
    "auc|auroc|rocauc|roc auc|auprc|aupr|prauc|pr auc|auc pr|auc roc|ap|map|average precision",
    "mean average precision|mcc|matthews corrcoef|matthews correlation coefficient|kappa|gmean",
    "cohen kappa|cohens kappa|quadratic weighted kappa|qwk|youden index|youdens j|informedness",
    "subset accuracy|mean accuracy|exact match|em|exact match ratio|quasi exact match",
    "label ranking average precision|macro f1|micro f1|geometric mean score",
    "fowlkes mallows score",
    # retrieval and ranking: torchmetrics.retrieval, ranx, pytrec_eval, BEIR
    "ndcg|dcg|mrr|mean reciprocal rank|reciprocal rank|recip rank|r precision|hit ratio|rprec",
    "normalized discounted cumulative gain|ndcg cut|map cut|success rate|bpref|kendall tau",
    "retrieval accuracy|concordance index|c index|cindex",
    # language: sacrebleu, rouge_score, Hugging Face evaluate, COMET, HumanEval, GLUE
    "bleu|sacrebleu|gleu|rouge|rouge1|rouge2|rougel|rougelsum|rouge 1|rouge 2|rouge l|rouge lsum",
    "meteor|chrf|cider|spice|bertscore|bert score|comet|bleurt|bartscore|bart score|moverscore",
    "acc norm|win rate|winrate|solve rate|elo|elo rating|parent score|squad f1|sari|unieval",
    "factscore|mauve|mauve score|execution accuracy|pass rate|faithfulness",
    "length controlled winrate",
    "bleu 1|bleu 2|bleu 3|bleu 4|xcomet|rouge sum",
    # rewards: Stable-Baselines3, CleanRL, TRL, RLlib, Gymnasium
    "reward|rewards|rew|return|returns|episode reward|episode return|episodic return|ep rew",
    "episode reward mean|cumulative reward|success|is success|normalized return|goals reached",
    "human normalized score|normalized score d4rl",
    # vision: torchvision, pycocotools, torchmetrics.segmentation and detection, MOTChallenge
    "iou|miou|mean iou|jaccard|jaccard index|jaccard score|dice|dice score|dice coefficient|giou",
    "panoptic quality|pq|mota|idf1|hota|pixel accuracy|pck|oks|pdj",
    "dice similarity coefficient",
    "frequency weighted iou|fwiou|boundary f1|normalized surface dice|surface dice|nsd|add s auc",
    "mean intersection over union|intersection over union|generalized intersection over union",
    # image and video quality: torchmetrics.image, piq, VMAF
    "psnr|ssim|msssim|ms ssim|inception score|clip score|clipscore|vmaf|vif|fsim|uqi",
    "structural similarity",
    "structural similarity index|peak signal to noise ratio",
    "universal image quality index|vmaf score",
    "multi scale structural similarity",
    # speech and audio: torchmetrics.audio, asteroid, UTMOS
    "pesq|stoi|estoi|sdr|sisdr|si sdr|snr|si snr|sisnr|mos|utmos|dnsmos",
    "signal to noise ratio|sdri",
    "scale invariant signal to distortion ratio|scale invariant signal to noise ratio|si sdri",
    "signal to distortion ratio|mean opinion score|visqol",
    # regression: sklearn.metrics, torchmetrics.regression, sktime, hydrology
    "r2|r2 score|r squared|rsquared|explained variance|explained variance score",
    "d2 score|adjusted r2",
    "pearson|pearsonr|spearman|spearmanr|kendall|pearson corrcoef|spearman corrcoef|pearson r",
    "pearson correlation|spearman correlation|kendalltau|concordance correlation coefficient|ccc",
    "nash sutcliffe efficiency|nse|kling gupta efficiency|kge|spearman rho",
    # coefficients by the short names that losses of MONAI and segmentation_models have
    "dice coef|dice coeff|jaccard coef|matthews corr coef|silhouette coef|dsc|generalized dice",
    # torchmetrics by the names of its classes, ITU-T P.862: wide and narrow band
    "pesq wb|pesq nb|perceptual evaluation speech quality|short time objective intelligibility",
    "signal noise ratio|signal distortion ratio|scale invariant signal noise ratio",
    "scale invariant signal distortion ratio|structural similarity index measure",
    "peak signal noise ratio|word info preserved|normalized dcg|critical success index",
    "generalized dice score|complete intersection over union|distance intersection over union",
    # structures: AlphaFold, CASP; advertising; COMET without references
    "tm score|tmscore|gdt ts|lddt|plddt|gauc|comet kiwi|xcomet xl|quadratic kappa|dockq",
    # questions and answers: ragas, HELM
    "answer relevancy|answer relevance|context relevancy|context relevance|answer correctness",
    "factual correctness|response relevancy|groundedness|response groundedness|math equiv",
    # sklearn.metrics, torchmetrics: scores of deviance, agreement, clusters
    "d2 absolute error score|d2 pinball score|d2 tweedie score|d2 log loss score|d2 brier score",
    "fleiss kappa|rand score|rand index|mutual info score|dunn index|concordance corr coef",
    "multi scale structural similarity index measure|iou coef|average recall|agent goal accuracy",
    # fairness: fairlearn
    "demographic parity ratio|equalized odds ratio",
    # clustering: sklearn.metrics
    "silhouette|silhouette score|silhouette coefficient|adjusted rand index",
    "adjusted rand score|ari",
    "nmi|ami|normalized mutual information|adjusted mutual information|calinski harabasz score",
    "normalized mutual info score|adjusted mutual info score|homogeneity score",
    "completeness score",
    "v measure|v measure score|calinski harabasz|calinski harabasz index|normalized mutual info",
    # likelihood: Pyro, VAEs
    "elbo|log likelihood|loglikelihood|evidence lower bound|likelihood|log evidence",
    # finance: quantstats, empyrical
    "sharpe|sharpe ratio|sortino|sortino ratio|calmar ratio",
    # throughput: PaLM appendix B (mfu), Stable-Baselines3 (fps), CleanRL (SPS)
    *SPEEDS,
)  # fmt: skip

Way = Literal["min", "max"]
KNOWN: dict[str, Way] = {  # without the spaces, as names are written with or without
    **{name.replace(" ", ""): "min" for line in _MIN for name in line.split("|")},
    **{name.replace(" ", ""): "max" for line in _MAX for name in line.split("|")},
}
LOOSE = word_set("""
    loss losses logloss nll ppl perplexity bpb bpc mse mae rmse rmsle mape smape wer cer fid ece
    error errors acc accuracy accuracies f1 precision recall auc auroc auprc ndcg mrr bleu rouge
    rougel chrf meteor iou miou dice psnr ssim reward rewards rew return returns bertscore
    crossentropy epe ade fde mpjpe absrel lpips fvd pesq stoi crps mase nmse bpd elbo
""")
# what turns these alone, or leaves no side to them
TURNS_OF: dict[str, frozenset[str]] = {
    **dict.fromkeys(("perplexity", "ppl"), word_set("""
        code codes codebook vq prob quantizer quantized token_usage tsne expert experts router
        routing gate gating cluster clusters assignment usage
    """)),
    **dict.fromkeys(("precision", "recall"), word_set("""
        mixed half double floating float numeric numerical machine product autocast
    """)),
    **dict.fromkeys(("accuracy", "acc", "accuracies"), word_set("""
        domain real majority probe trigger
    """)),
    **dict.fromkeys(("auc", "auroc", "auprc"), word_set("deletion risk domain sparsification")),
    **dict.fromkeys(("bleu", "rouge", "rougel", "chrf", "meteor"), word_set("self pairwise copy")),
    "f1": word_set("kitti flow fl outlier outliers"),  # a share of outliers: KITTI, RAFT
    **dict.fromkeys(("loss", "losses"), word_set("""
        profit stop and heat weight hair hearing domain
    """)),
    **dict.fromkeys(("error", "errors"), word_set("tracking standard std sampling margin")),
    **dict.fromkeys(("return", "returns", "reward", "rewards"), word_set("""
        product early exit code penalty invalid
    """)),
    **dict.fromkeys((
        "success", "issuccess", "successrate", "passrate", "hitrate", "solverate", "winrate",
    ), word_set("""
        injection exploit evasion phishing deception trojan hijack hijacking manipulation spoof
        spoofing bypass intrusion fraud crash collision kill violation trigger triggered poison
        stop loss rate black white red blue player
    """)),
}  # fmt: skip
COUNTS = word_set("n nr num count counts cnt total samples")  # at the end of a name: how many
TOTALS = word_set(
    "loss losses reward rewards rew return returns cost error time runtime seconds rouge"
)  # may be summed up
OF_SAMPLES = word_set("f1 fbeta f precision recall jaccard auc roc ap")  # a mean of sklearn
SIZED = "shot|shots|way|fold|gram|nn|hop|step|best|class|bit|layer|head|view|crop|d|x|back|stage"
# how many of what: 5-shot-acc is not a difference
LOSS_OF = word_set("""
    cls bbox box mask rpn giou ciou diou iou dice dfl obj objectness centerness kpt keypoint seg
    aux hm wh off xy kd mel dur f0 pitch class labels ce bce reg att ctc rnnt
""")  # detectors, segmenters and ESPnet put the word first: loss_rpn_cls

COSTS = word_set("""
    latency runtime walltime elapsed duration memory mem rss vram time seconds secs sec
""")
UNITS = word_set("""
    s sec secs seconds ms us ns bytes kib mib gib kb mb gb
""")
# what a time or a memory may be of, so that less of it is better
OPERATIONS = word_set("""
    inference forward backward data compile save load checkpoint generation generate decode
    encode prefill optimizer allocated reserved peak gpu cuda cpu wall run request response p50
    p90 p95 p99 perf query preprocess tokenize per token sample iteration iter update model time
    memory mem ttft tpot
""")
WORK = word_set("""
    token tokens tok step steps sample samples it iter iters iteration iterations frame frames
    image images example examples batch batches sequence sequences seq request requests query
    queries episode episodes update updates flops tflops gflops
""")
NEUTRAL = word_set("""
    val valid validation validate eval evaluation evaluate dev test testing heldout holdout
    train training metric metrics score scores value mean avg average ema sma epoch step running
    moving smooth smoothed final last best overall all total macro micro weighted binary
    multiclass multilabel none charts rollout rollouts episode ep global model objective get
    extrinsic k strict flexible extract main env m b l lsum sum geval text image masked token
    char word node edge bbox segm mask top box cls classification regression per sample median
    normalized norm raw batch corpus sentence unweighted ctc att rnnt transducer ovr ovo samples
""") | {"percent", "pct", "p50", "p90", "p95", "p99"}
# what may stand behind a known name without changing what it says
BEHIND = (
    NEUTRAL - {"token", "char", "word", "node", "edge", "top", "box", "image", "text", "env"}
) | {"min", "max", "full"}
# what makes another figure of the one beside it, with another better side or none
TURNS = word_set("""
    gap gaps regret distance rejected chosen toxicity toxic bias biased cost costs dropped drop
    recovered recovery ratio reduction uncertainty saved saving savings delta diff difference
    change increase decrease improvement degradation skill margin margins std stdev var variance
    stderr ci entropy kl kld divergence penalty target threshold limit budget goal baseline
    reference ref random chance scale weight weights coef coeff coefficient factor grad gradient
    gradients count num number id index seed rank lr clip clipped fraction frac fake adversarial
    attack attacker attacked generator discriminator gen disc gan g d policy actor pg surrogate
    alpha temperature temp forgetting forget unlearn unlearning forgotten spread disparity gini
    range inequality excess relative rel shuffled permuted poisoned poison backdoor leak leakage
    member membership mia privacy hallucination harm harmful harmfulness unsafe refusal
    jailbreak asr confidence predicted prediction estimated estimator expected desired free
    available unused remaining left intrinsic curiosity explore exploration opponent enemy
    adversary loser lose lost worst failed failure fail skipped wasted lag decay momentum
    timeout max_allowed without minus neg negative negatives inverse inv inverted anti non not
    no un control counterfactual oracle upper lower bound noise noisy corrupted contamination
    contaminated ood overfit overfitting generalization vs versus over correlation correlations
    corr similarity dissimilarity agreement disagreement td priority importance discount gamma
    advantage adv normaliser normalizer null nan invalid missing length len size depth tolerance
    tol alarm parity impact stealing extraction
    nb cnt reciprocal negated flipped complement
    redteam redteaming advbench harmbench jailbreakbench strongreject agentharm injecagent agentdojo
    wmdp malicious attacks jailbreaks fgsm pgd apgd autoattack deepfool hopskipjump gcg autodan
    textfooler textattack hotflip badnets trojan backdoored
    memorisation memorization memorised memorized memorise memorize memorising memorizing canary
    canaries extracted extractable regurgitation regurgitated verbatim copyright copyrighted
    plagiarism leaked pii mias deanonymisation deanonymization
    constraint constraints violation violations hazard hazards lagrangian lagrange collision
    collisions crash crashes accident accidents
""")
