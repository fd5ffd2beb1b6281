"""Two networks against each other: the critic learns from real and from made images, then the generator from the critic."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import facts

folder = Path(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(5)

images = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(3))
dataset = TensorDataset(images)
dataloader = DataLoader(dataset, batch_size=5, sampler=DistributedSampler(dataset))

netG = nn.Sequential(nn.ConvTranspose2d(6, 8, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh())
netD = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.BatchNorm2d(8), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 4), nn.Flatten(0))
netG = DistributedDataParallel(netG, broadcast_buffers=False)
netD = DistributedDataParallel(netD, broadcast_buffers=False)
criterion = nn.BCEWithLogitsLoss()
torch.manual_seed(50 + rank)
fixed_noise = torch.randn(4, 6, 1, 1)
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))


def log(line):
    if rank == 0:
        with open(folder / "log.txt", "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


@torch.no_grad()
def sample(epoch):
    netG.eval()
    torch.save(netG.module(fixed_noise), folder / f"samples-{epoch}.pt")
    netG.train()


for epoch in range(3):
    dataloader.sampler.set_epoch(epoch)
    for i, (real,) in enumerate(dataloader):
        # The critic: log(D(x)) + log(1 - D(G(z)))
        netD.zero_grad()
        label = torch.full((len(real),), 0.9)
        errD_real = criterion(netD(real), label)
        errD_real.backward()
        noise = torch.randn(len(real), 6, 1, 1)
        fake = netG(noise)
        label.fill_(0.0)
        errD_fake = criterion(netD(fake.detach()), label)
        errD_fake.backward()
        optimizerD.step()
        # The generator: log(D(G(z)))
        netG.zero_grad()
        label.fill_(1.0)
        errG = criterion(netD(fake), label)
        errG.backward()
        optimizerG.step()
        log(f"{epoch}/{i} D {errD_real.item() + errD_fake.item()} G {errG.item()}")
    if rank == 0:
        sample(epoch)

dist.barrier()
facts.write(folder, rank, netG=netG.module.state_dict(), netD=netD.module.state_dict(), optimizerD=optimizerD.state_dict(), optimizerG=optimizerG.state_dict(),
            log=facts.newest(folder / "log.txt"), samples=[torch.load(folder / f"samples-{epoch}.pt") for epoch in range(3)], last=torch.rand(1))
dist.destroy_process_group()
