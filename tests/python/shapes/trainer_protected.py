"""A small language model by Hugging Face's Trainer: an evaluation and a save in each epoch, the best of them at the end; a later start goes on
from the newest save."""

import math
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import EarlyStoppingCallback, GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

import facts
import kintsugi.torch
import kintsugi.torch.huggingface

folder = Path(sys.argv[1])
output_dir = folder / "trained"


class Sentences(Dataset):
    def __init__(self, count, first):
        self.count, self.first = count, first

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        tokens = torch.randint(24, (8,), generator=torch.Generator().manual_seed(self.first + index)).sort().values
        labels = tokens.clone()
        labels[: index % 3] = -100
        return {"input_ids": tokens, "labels": labels}


class LogCallback(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            shown = {name: value for name, value in logs.items() if not name.endswith(("runtime", "per_second"))}
            with open(folder / "log.txt", "a", encoding="utf-8") as file:
                file.write(f"{state.global_step}-{'-'.join(sorted(shown))} {shown}\n")


class SaveCallback(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 10:  # within an epoch
            control.should_save = True


class PerplexityTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        loss = loss + 1e-3 * outputs["logits"].square().mean()
        return (loss, outputs) if return_outputs else loss


def compute_metrics(told):
    predictions, labels = told.predictions[:, :-1], told.label_ids[:, 1:]
    mask = labels != -100
    return {"accuracy": float((predictions == labels)[mask].mean())}


def preprocess_logits_for_metrics(logits, labels):
    return logits.argmax(-1)


def main():
    torch.set_num_threads(1)
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    args = TrainingArguments(
        output_dir=str(output_dir), use_cpu=True, num_train_epochs=4, per_device_train_batch_size=3, gradient_accumulation_steps=2, learning_rate=3e-2,
        per_device_eval_batch_size=2, warmup_steps=2, lr_scheduler_type="cosine", weight_decay=0.1, logging_steps=2, eval_strategy="epoch", save_strategy="epoch",
        save_total_limit=4, load_best_model_at_end=True, metric_for_best_model="accuracy", seed=2, report_to=[], dataloader_pin_memory=False,
    )  # fmt: skip
    set_seed(args.seed)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=24, n_positions=8, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
    trainer = PerplexityTrainer(
        model=model, args=args, train_dataset=Sentences(44, 0), eval_dataset=Sentences(10, 1000), compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=preprocess_logits_for_metrics, callbacks=[EarlyStoppingCallback(3), LogCallback(), SaveCallback()],
    )  # fmt: skip
    last_checkpoint = get_last_checkpoint(output_dir) if output_dir.is_dir() else None
    result = kintsugi.torch.huggingface.train(run, trainer, resume_from_checkpoint=last_checkpoint)
    run.do(trainer.save_model)
    run.do(trainer.save_metrics, "train", {name: value for name, value in result.metrics.items() if not name.endswith(("runtime", "per_second"))})
    metrics = run.do(trainer.evaluate)
    metrics["perplexity"] = math.exp(metrics["eval_loss"])
    trainer.log_metrics("eval", metrics)
    run.do(trainer.save_state)
    run.do(trainer.accelerator.wait_for_everyone)

    history = [{name: value for name, value in entry.items() if not name.endswith(("runtime", "per_second"))} for entry in trainer.state.log_history]
    facts.write(
        folder, dist.get_rank(), model=trainer.model.state_dict(), optimizer=trainer.optimizer.state_dict(), history=history,
        log=facts.newest(folder / "log.txt"), scheduler=[trainer.lr_scheduler.last_epoch, trainer.lr_scheduler.get_last_lr()],
        result=[result.global_step, result.training_loss], metrics=[metrics["eval_accuracy"], metrics["perplexity"]],
        best=[trainer.state.best_metric, Path(trainer.state.best_model_checkpoint).name, trainer.state.epoch],
        saved=sorted(str(path.relative_to(output_dir)) for path in output_dir.rglob("*") if path.is_file()), last=torch.rand(1),
    )  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
