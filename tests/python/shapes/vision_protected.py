"""Images into classes: epochs with a DistributedSampler, mixed precision with a loss scale, an average of the weights, a warm-up, and an
evaluation behind each epoch, the best of which is saved."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import facts
import kintsugi.torch


class Images(Dataset):
    def __init__(self, count, seed, augment):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(3, (count,), generator=generator)
        self.pixels = torch.rand(count, 1, 6, 6, generator=generator) + self.labels[:, None, None, None] * 0.4
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.pixels[index]
        if self.augment and torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image, self.labels[index]


def build():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 3))


def train_one_epoch(run, model, average, criterion, optimizer, loader, epoch, scaler, scheduler, log):
    model.train()
    for i, (image, target) in run.enumerate(loader, epoch):
        with run.step():
            with torch.amp.autocast("cpu", dtype=torch.bfloat16):
                loss = criterion(model(image), target)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            run.report(loss=loss.item())
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            if i % 2 == 0:
                average.update_parameters(model.module)
            log(f"{epoch}/{i} loss {loss.item()} lr {optimizer.param_groups[0]['lr']}")


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    counts = torch.zeros(2)
    for image, target in loader:
        counts += torch.tensor([float((model(image).argmax(1) == target).sum()), float(len(target))])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main(folder, epochs=3):
    torch.set_num_threads(1)
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = DistributedDataParallel(build())
    average = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    torch.manual_seed(70 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3, nesterov=True)
    data, held_out = Images(48, 1, augment=True), Images(24, 2, augment=False)
    loader = DataLoader(data, batch_size=6, sampler=DistributedSampler(data), drop_last=True)
    test_loader = DataLoader(held_out, batch_size=6, sampler=DistributedSampler(held_out, shuffle=False))
    steps = epochs * len(loader)
    warmup = LinearLR(optimizer, start_factor=0.1, total_iters=4)
    scheduler = SequentialLR(optimizer, [warmup, CosineAnnealingLR(optimizer, T_max=steps - 4)], milestones=[4])
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    run.register(model=model, average=average, optimizer=optimizer, scheduler=scheduler, scaler=scaler)

    def log(line):
        if rank == 0:
            with open(folder / "log.txt", "a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    def save(accuracy):
        torch.save({"model": model.module.state_dict(), "scaler": scaler.state_dict(), "accuracy": accuracy}, folder / "best.pt")

    best = -1.0
    for epoch in range(epochs):
        train_one_epoch(run, model, average, criterion, optimizer, loader, epoch, scaler, scheduler, log)
        accuracy = run.do(evaluate, model, test_loader)
        averaged = run.do(evaluate, average, test_loader)
        log(f"epoch-{epoch} {accuracy} {averaged}")
        if accuracy > best:
            best = accuracy
            run.do(save, accuracy, only=0)
    final = run.do(evaluate, average, test_loader)
    dist.barrier()
    facts.write(folder, rank, model=model.module.state_dict(), average=average.state_dict(), optimizer=optimizer.state_dict(), scaler=scaler.state_dict(),
                scheduler=[scheduler.last_epoch, scheduler.get_last_lr()], log=facts.newest(folder / "log.txt"),
                best=torch.load(folder / "best.pt"), last=[best, final, torch.rand(1)])
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
