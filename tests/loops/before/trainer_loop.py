"""Hugging Face Trainer: a small Llama that learns to count, after the Trainer's own example."""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(0)
torch.set_num_threads(1)
shape = LlamaConfig(
    vocab_size=32,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
model = LlamaForCausalLM(shape)
rows = [
    {"input_ids": ids, "labels": ids} for ids in (torch.arange(16) + torch.arange(96)[:, None]) % 32
]

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        max_steps=24,
        learning_rate=1e-2,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=12,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=rows[:80],
        eval_dataset=rows[80:],
    )
    trainer.train()
