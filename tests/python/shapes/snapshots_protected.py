"""A Trainer class: epochs of batches, a snapshot every other epoch, which a later start goes on from."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import facts
import kintsugi.torch


class Lines(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        x = torch.linspace(-1, 1, 12) * (index % 7) + torch.randn(12) * 0.1
        return x, torch.tensor([float(index % 7)])


class Trainer:
    def __init__(self, run, model, train_data, optimizer, save_every, snapshot_path):
        self.run = run
        self.rank = dist.get_rank()
        self.model = model
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.epochs_run = 0
        self.seen = 0
        self.snapshot_path = snapshot_path
        if snapshot_path.exists():
            self._load_snapshot(snapshot_path)
        self.model = DDP(self.model)
        run.register(model=self.model, optimizer=optimizer)
        run.keep(self, "seen")

    def _load_snapshot(self, snapshot_path):
        snapshot = torch.load(snapshot_path)
        self.model.load_state_dict(snapshot["model"])
        self.epochs_run = snapshot["epochs_run"]

    def _save_snapshot(self, epoch):
        snapshot = {"model": self.model.module.state_dict(), "epochs_run": epoch + 1, "seen": self.seen}
        torch.save(snapshot, self.snapshot_path)

    def _log(self, line):
        with open(self.snapshot_path.parent / "log.txt", "a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(source), targets)
        loss.backward()
        self.seen += len(source)
        self.run.report(loss=loss.item())
        self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch):
        for i, (source, targets) in self.run.enumerate(self.train_data, epoch):
            with self.run.step():
                loss = self._run_batch(source, targets)
                if self.rank == 0:
                    self._log(f"{epoch}/{i} {loss}")

    def train(self, max_epochs):
        for epoch in self.run.do(range, self.epochs_run, max_epochs):
            self._run_epoch(epoch)
            if epoch % self.save_every == 0:
                self.run.do(self._save_snapshot, epoch, only=0)


def main(folder):
    torch.set_num_threads(1)
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    data = Lines()
    loader = DataLoader(data, batch_size=6, shuffle=False, sampler=DistributedSampler(data))
    trainer = Trainer(run, model, loader, optimizer, save_every=2, snapshot_path=folder / "snapshot.pt")
    trainer.train(4)
    dist.barrier()
    facts.write(folder, dist.get_rank(), model=model.state_dict(), optimizer=optimizer.state_dict(), log=facts.newest(folder / "log.txt"),
                snapshot=torch.load(folder / "snapshot.pt"), last=[trainer.seen, torch.rand(1)])
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
