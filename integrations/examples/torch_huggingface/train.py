"""Hugging Face's Trainer with a small GPT-2 on data made on the spot; the lines that mention `run` are all that Kintsugi adds.

  kintsugi run --nproc 2 --inject kill:1@5:backward -- python train.py
"""

from __future__ import annotations

import argparse
import tempfile

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import kintsugi.torch
import kintsugi.torch.huggingface


class Counting(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Lines that count in steps of their own."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        line = (index + torch.arange(24) * (1 + index % 5)) % 97
        return {"input_ids": line, "labels": line}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--accumulate", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)

    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder, use_cpu=not torch.cuda.is_available(), max_steps=options.steps, per_device_train_batch_size=4, learning_rate=3e-3,
            gradient_accumulation_steps=options.accumulate, warmup_steps=2, logging_steps=4, save_strategy="no", report_to=[],
            disable_tqdm=True, dataloader_pin_memory=False, seed=1,
        )  # fmt: skip
        torch.manual_seed(1)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=97, n_positions=24, n_embd=32, n_layer=2, n_head=2))
        trainer = Trainer(model=model, args=args, train_dataset=Counting())
        kintsugi.torch.huggingface.train(run, trainer)


main()
