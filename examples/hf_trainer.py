"""A Hugging Face Trainer in the cockpit: one callback."""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from albor_core.integrations.hf import AlborCallback

SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
model = LlamaForCausalLM(LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **SHAPE))
rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 64, (64, 16))]

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, max_steps=20, logging_steps=1, eval_strategy="steps", eval_steps=10,
        save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    callback = AlborCallback("examples", name="hf-trainer")
    data = {"train_dataset": rows[:48], "eval_dataset": rows[48:]}
    Trainer(model, arguments, callbacks=[callback], **data).train()
