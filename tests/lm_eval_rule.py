"""lm-evaluation-harness's rolling likelihood, after its documentation: what ours is held to."""

from __future__ import annotations

import torch


def their_windows(token_list, prefix_token, max_seq_len, context_len):
    """lm_eval.utils.get_rolling_token_windows and make_disjoint_window, as its README tells."""
    if not token_list:
        return
    pred_len = max_seq_len - context_len + 1
    first = min(max_seq_len, len(token_list))
    pairs = [([prefix_token, *token_list[: first - 1]], token_list[:first])]
    predicted = first
    while predicted < len(token_list):
        size = min(len(token_list) - predicted, pred_len)
        end = predicted + size
        pairs.append((token_list[end - max_seq_len - 1 : end - 1], token_list[end - size : end]))
        predicted += size
    for read, wanted in pairs:
        yield read[: len(read) - (len(wanted) - 1)], wanted


def rolling_likelihood(model, ids, first, longest):
    """ln p of `ids` by a model of transformers, as `loglikelihood_rolling` adds it up."""
    total = 0.0
    for context, wanted in their_windows(ids, first, longest, 1):
        whole = torch.tensor([[*context, *wanted]])
        with torch.no_grad():
            logs = model(whole[:, :-1]).logits[0].log_softmax(-1)
        picked = logs[len(context) - 1 :].gather(-1, torch.tensor(wanted)[:, None])
        total += picked.double().sum().item()
    return total
