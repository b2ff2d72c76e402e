"""Random small models of every family, made by transformers, and what we load of them."""

import torch

from albor_core.model.hf.folder import open_model
from albor_core.model.hf.tensors import load_model

FIRST = {"original_max_position_embeddings": 16}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 128,
    "max_position_embeddings": 64,
    "initializer_range": 0.1,  # far from logits near zero, which agree by default
}
FAMILIES = {
    "Llama": (
        {"num_key_value_heads": 4},  # Llama 2
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "rms_norm_eps": 1e-5},
        {"rope_parameters": {**LLAMA3, **FIRST, "rope_theta": 5e5}, "tie_word_embeddings": True},
        {"head_dim": 32, "rope_parameters": {"rope_type": "linear", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, **FIRST}},
    ),
    "Qwen2": (
        {},
        {"tie_word_embeddings": True, "num_key_value_heads": 1},
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "rms_norm_eps": 1e-6},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, **FIRST, "rope_theta": 1e6}},
    ),
    "Qwen3": (
        {"head_dim": 16},
        {"head_dim": 32, "tie_word_embeddings": True},
        {"head_dim": 8, "num_key_value_heads": 4},
        {"head_dim": 16, "use_sliding_window": True, "sliding_window": 5,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
        {"head_dim": 32, "num_key_value_heads": 1,
         "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
    "Mistral": (
        {"sliding_window": 8},
        {"sliding_window": None, "head_dim": 32},
        {"sliding_window": 4096, "num_key_value_heads": 1},
        {"sliding_window": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
}  # fmt: skip
CASES = [(name, more) for name, shapes in FAMILIES.items() for more in shapes]


def theirs(name, more, folder, **how):
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **more})
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for label, weight in model.named_parameters():
            if weight.ndim == 1:  # biases of 0 and norms of 1 would hide a mistake
                weight.normal_(0.0 if label.endswith("bias") else 1.0, 0.3)
    model.save_pretrained(folder, **how)
    return model


def ours(folder, dtype=torch.float32):
    return load_model(open_model(folder), device=torch.device("cpu"), dtype=dtype)
