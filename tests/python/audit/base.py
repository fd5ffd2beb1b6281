"""A small training script that saves and resumes everything, in parts: each script here is it with one part done as people do it.

    SCRIPT [--resume]        24 steps of 4 samples, 10 steps an epoch, a checkpoint every 6 steps
"""
import copy
import os
import random
import sys

import numpy
import torch
from torch import nn

SAMPLES, FEATURES, BATCH = 40, 6, 4


class Data(torch.utils.data.Dataset):
    def __init__(self, samples=SAMPLES):
        generator = torch.Generator().manual_seed(11)
        self.x = torch.randn(samples, FEATURES, generator=generator)
        self.y = self.x.sum(1, keepdim=True).sin()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Training:
    """What a script changes it overrides. `saved` is the checkpoint that it was resumed from, or None."""

    steps, save_every, path = 24, 6, "last.pt"
    lr = 0.05
    rank, ranks = 0, 1

    # --- parts

    def build_model(self):
        return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Dropout(0.25), nn.Linear(8, 1))

    def build_optimizer(self):
        return torch.optim.AdamW(self.model.parameters(), lr=self.lr)

    def build_scheduler(self):
        return torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda k: min(1.0, (k + 1) / 8) / (1 + k / 20))

    def build_average(self):
        return torch.optim.swa_utils.AveragedModel(self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))

    def build_scaler(self):
        return None

    def build(self):
        self.data = Data()
        self.model = self.build_model()
        self.optimizer = self.build_optimizer()
        self.scheduler = self.build_scheduler()
        self.average = self.build_average()
        self.scaler = self.build_scaler()

    def seed_of_order(self, epoch):
        return 100 + epoch

    def order(self, epoch):
        return torch.randperm(len(self.data), generator=torch.Generator().manual_seed(self.seed_of_order(epoch))).tolist()

    def loader(self, epoch, skip):
        """Its own generator: what the loader draws for its workers is not taken from the model's random numbers."""
        return torch.utils.data.DataLoader(self.data, BATCH, sampler=self.order(epoch)[skip * BATCH:], generator=torch.Generator())

    def per_epoch(self):
        return -(-len(self.data) // BATCH)

    # --- the checkpoint

    def state(self):
        return {"step": self.step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                **({"scheduler": self.scheduler.state_dict()} if self.scheduler else {}), **({"average": self.average.state_dict()} if self.average else {}),
                **({"scaler": self.scaler.state_dict()} if self.scaler else {}), "torch": torch.get_rng_state(), "numpy": numpy.random.get_state(), "python": random.getstate()}

    def save(self):
        torch.save(self.state(), self.path)

    def load(self, saved):
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        if "scheduler" in saved:
            self.scheduler.load_state_dict(saved["scheduler"])
        if "average" in saved:
            self.average.load_state_dict(saved["average"])
        if "scaler" in saved:
            self.scaler.load_state_dict(saved["scaler"])
        self.step = saved["step"]

    def load_random(self, saved):
        if "torch" in saved:
            torch.set_rng_state(saved["torch"])
            numpy.random.set_state(saved["numpy"])
            random.setstate(saved["python"])

    def read(self):
        return torch.load(self.path, weights_only=False)

    # --- the loop

    def loss(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.model(x), y)

    def gradients(self):
        """Between backward and the update."""

    def update(self, batch):
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        if self.scaler:
            self.scaler.scale(loss).backward()
            self.gradients()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            self.gradients()
            self.optimizer.step()

    def behind(self):
        """Behind the update."""
        if self.scheduler:
            self.scheduler.step()
        if self.average:
            self.average.update_parameters(self.model)

    def done(self):
        self.step += 1
        self.behind()
        if self.step % self.save_every == 0:
            self.save()

    def train(self):
        while self.step < self.steps:
            epoch, skip = divmod(self.step, self.per_epoch())
            for batch in self.loader(epoch, skip):
                self.update(batch)
                self.done()
                if self.step >= self.steps:
                    break

    def seed(self):
        torch.manual_seed(3)
        numpy.random.seed(3)
        random.seed(3)

    def main(self):
        self.seed()
        self.step = 0
        self.saved = None
        self.build()
        if "--resume" in sys.argv:
            self.saved = self.read()
            self.load(self.saved)
            self.load_random(self.saved)
            self.seed_again()
        self.train()

    def seed_again(self):
        """Behind the load: a process that is started later and has not restored its random numbers has others than the first one had."""
        if "torch" not in self.saved:
            torch.manual_seed(os.getpid())
            numpy.random.seed(os.getpid())
            random.seed(os.getpid())


__all__ = ["BATCH", "Data", "FEATURES", "SAMPLES", "Training", "copy", "nn", "numpy", "os", "random", "sys", "torch"]
