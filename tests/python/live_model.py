"""A small model, trained by ranks: what their saves are read as is compared with what rank 0 writes at the end.

  live_model.py OUT gpt|norm      gpt: a tiny GPT-2 of transformers; norm: BatchNorm, whose statistics are buffers, a mask that is not kept, and a
                              parameter without an element
"""
import sys

import kintsugi.torch
import torch

STEPS = 4


def gpt():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0,
                                       resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))  # a foreign checkpoint has no generator of random numbers
    model.config.save_pretrained(f"{sys.argv[1]}/config")
    return model


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4)
        self.register_buffer("mask", torch.ones(8), persistent=False)
        self.none = torch.nn.Parameter(torch.empty(0, 8))

    def forward(self, input_ids, labels):
        return self.last(self.norm(self.first(input_ids.float())) * self.mask).square().mean() + self.none.sum()


run = kintsugi.torch.join()
torch.distributed.init_process_group("kintsugi")
torch.manual_seed(3)
model = gpt() if sys.argv[2] == "gpt" else Norm()
trained = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
run.register(model=trained, optimizer=optimizer)
for step in run.range(STEPS):
    with run.step():
        tokens = torch.randint(64, (2, 16), generator=torch.Generator().manual_seed(100 * step + run.rank))
        optimizer.zero_grad()
        result = trained(input_ids=tokens, labels=tokens)
        (result.loss if sys.argv[2] == "gpt" else result).backward()
        optimizer.step()
if run.rank == 0:
    torch.save(model.state_dict(), f"{sys.argv[1]}/trained.pt")
    torch.save({name: optimizer.state[parameter] for name, parameter in model.named_parameters()}, f"{sys.argv[1]}/states.pt")
