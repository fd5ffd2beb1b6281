"""A GAN's loop: the critic steps twice in a step, on what each of its own updates left, and then the generator, with collectives between.
PLAIN=1: the same under plain torch over Gloo. What is left, bit for bit, goes to FOLDER/rank-N.json.

  torch_gan.py FOLDER
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from beside import begin, digest, leave

STEPS = 6


def layers(first: int, last: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(first, 8), nn.BatchNorm1d(8), nn.LeakyReLU(0.2), nn.Linear(8, last))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    run = begin()
    torch.manual_seed(1)
    generator = DistributedDataParallel(layers(4, 6))
    critic = DistributedDataParallel(layers(6, 1), broadcast_buffers=False)
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.05, momentum=0.9, dampening=0.5)
    of_generator = torch.optim.NAdam(generator.parameters(), lr=0.02)
    rates = torch.optim.lr_scheduler.ExponentialLR(of_critic, 0.9)
    if run is not None:
        run.register(generator=generator, critic=critic, of_critic=of_critic, of_generator=of_generator, rates=rates)
        if run.rank == 0 and not run.replaces:
            assert "work on copies until its gate" in run.plan(), run.plan()

    def step(k: int) -> None:
        random = torch.Generator().manual_seed(10 * k + dist.get_rank())
        for _ in range(2):
            of_critic.zero_grad()
            real, noise = torch.randn(8, 6, generator=random), torch.randn(8, 4, generator=random)
            loss = critic(torch.cat([generator(noise).detach(), real])).square().mean()
            loss.backward()
            of_critic.step()
        before = digest(*critic.parameters())
        of_generator.zero_grad()
        critic.requires_grad_(False)
        loss = (critic(generator(torch.randn(8, 4, generator=random))) - 1).square().mean()
        loss.backward()
        critic.requires_grad_(True)
        if run is not None:
            run.report(loss=float(loss.detach()), samples=[k * dist.get_world_size() + dist.get_rank()])
        if k != 5:  # a step in which the generator does not step: it ends with the step
            of_generator.step()
        rates.step()
        assert digest(*critic.parameters()) == before, "what an update left lies elsewhere behind the gate"

    if run is None:
        for k in range(1, STEPS + 1):
            step(k)
    else:
        run.train(step, STEPS)
    left = {name: digest(*model.parameters(), *model.buffers()) for name, model in (("generator", generator), ("critic", critic))}
    for name, optimizer in (("of_critic", of_critic), ("of_generator", of_generator)):
        values = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
        left[name] = digest(*values) + str(optimizer.param_groups[0]["lr"])
    leave(options.folder, {name: {"bits": value} for name, value in left.items()})


main()
