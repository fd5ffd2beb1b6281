"""A small language model in the shape of a well known one: no loader, batches are drawn at random. Its checkpoint has no random numbers, but for `--random`.

    SCRIPT [--random] [--resume]
"""
import os
import sys

import torch
from torch import nn

DATA = torch.arange(5000) % 61


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(61, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 61)
        self.head.weight = self.embedding.weight

    def forward(self, tokens, targets):
        return nn.functional.cross_entropy(self.head(self.layer(self.embedding(tokens))).flatten(0, 1), targets.flatten())


def batch():
    places = torch.randint(len(DATA) - 9, (4,))
    return {"tokens": torch.stack([DATA[i:i + 8] for i in places]), "targets": torch.stack([DATA[i + 1:i + 9] for i in places])}


def main(with_random):
    torch.manual_seed(1337)
    model, step = Model(), 0
    optimizer = torch.optim.AdamW([{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
                                   {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}], lr=1e-3)
    if "--resume" in sys.argv:
        saved = torch.load("last.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
        torch.manual_seed(os.getpid())
        if with_random:
            torch.set_rng_state(saved["random"])
    while step < 24:
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1, (step + 1) / 5)
        if step % 4 == 0 and step > 0:
            # Before the evaluation, which draws: a resume makes it again.
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "random": torch.get_rng_state()}, "last.pt")
            model.eval()
            with torch.no_grad():
                print(step, float(sum(model(**batch()) for _ in range(3)) / 3))
            model.train()
        for _ in range(2):
            (model(**batch()) / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
