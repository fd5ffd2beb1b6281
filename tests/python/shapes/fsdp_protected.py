"""A model cut over all ranks by fully_shard, and saved at the end as a distributed checkpoint."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import facts
import kintsugi.torch

STEPS = 12


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(24, 16)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True) for _ in range(2))
        self.head = nn.Linear(16, 24)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main(folder):
    torch.set_num_threads(1)
    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(2)
    model = Model()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(20 + rank)

    run.register(model=model, optimizer=optimizer)

    def log(line):
        if rank == 0:
            with open(folder / "log.txt", "a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    def save():
        parameters, state = get_state_dict(model, optimizer)
        dcp.save({"model": parameters, "optimizer": state}, checkpoint_id=folder / "checkpoint")

    for step in run.steps(STEPS):
        with run.step():
            tokens = torch.randint(24, (4, 9))
            loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            run.report(loss=loss.item())
            optimizer.step()
            optimizer.zero_grad()
            log(f"{step} {loss.item()}")
    run.do(save)
    again = {name: torch.empty(parameter.shape) for name, parameter in model.state_dict().items()}
    dcp.load({"model": again}, checkpoint_id=folder / "checkpoint")
    facts.write(folder, rank, model=dict(model.named_parameters()), optimizer=optimizer.state_dict()["state"], log=facts.newest(folder / "log.txt"), saved=again,
                last=torch.rand(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
