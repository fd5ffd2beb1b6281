"""Megatron-core's GPT whose batches are bad here and there. PLAIN=1: the same under plain torch over Gloo, which passes such steps by as Megatron does
those of --iterations-to-skip: they count, with their samples, and nothing is computed.

  megatron_refused.py FOLDER [--bad STEP:RANK[:large]]... [--untold] [--grows] [WORDS OF megatron_gpt/train.py]...
      bad: what this rank has of the loss is no number there (large: 1e4 times what it is), each time it is computed
      untold: no loss is reported; grows: the batch does, from 4 samples to 8
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from beside import PLAIN, begin, digest, leave

TRAIN = Path(__file__).resolve().parent.parent.parent / "integrations/examples/megatron_gpt/train.py"
spec = importlib.util.spec_from_file_location("megatron_gpt", TRAIN)
assert spec is not None and spec.loader is not None
train: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(train)  # Megatron is told there that the CPU is its device, plainly too

import kintsugi.megatron  # noqa: E402
from megatron.core import num_microbatches_calculator as microbatches, parallel_state  # type: ignore # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # type: ignore # noqa: E402
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker, model_parallel_cuda_manual_seed  # type: ignore # noqa: E402

STEPS = 8

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--bad", action="append", default=[])
parser.add_argument("--untold", action="store_true")
parser.add_argument("--grows", action="store_true")
said, words = parser.parse_known_args()
bad = {int(word.split(":")[0]): (int(word.split(":")[1]), 1e4 if word.endswith(":large") else float("nan")) for word in said.bad}
options = train.parse(words)

run = begin()
parallel_state.initialize_model_parallel(options.tensor, options.pipeline, options.virtual if options.virtual > 1 else None,
                                         create_gloo_process_groups=False, num_distributed_optimizer_instances=options.instances)  # fmt: skip
part, parts = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
microbatches.init_num_microbatches_calculator(dist.get_rank(), [4, 2, 16] if said.grows else None, options.batch, train.MICRO_BATCH, parts)
torch.manual_seed(2 + part)
model_parallel_cuda_manual_seed(1)
chunks, optimizer, scheduler = train.build(options)
state = None if PLAIN else kintsugi.megatron.protect(run, chunks, optimizer, scheduler)
text = torch.frombuffer(bytearray(b"".join(p.read_bytes() for p in sorted(train.TEXT.iterdir()) if p.is_file())), dtype=torch.uint8)
windows = (len(text) - 1) // options.context
consumed = 0  # plainly
at = 0
losses: list[float] = []
if run:
    run.keep(globals(), "losses")


def begin_step(k: int) -> int:
    """What was consumed before it."""
    global at
    at = k
    done = consumed if state is None else state.consumed_samples
    microbatches.update_num_microbatches(done, False)
    return done


def forward_step(batches: Any, model: Any) -> tuple[torch.Tensor, Any]:
    output, loss_of = train.forward_step(batches, model)

    def bad_loss_of(values: torch.Tensor) -> Any:
        return loss_of(values * bad[at][1])

    return output, bad_loss_of if at in bad and dist.get_rank() == bad[at][0] else loss_of


def step(k: int) -> None:
    first, count = begin_step(k), microbatches.get_num_microbatches()
    own = range(first + part * count * train.MICRO_BATCH, first + (part + 1) * count * train.MICRO_BATCH)
    batches = [text[w * options.context : (w + 1) * options.context + 1][None].long() for w in (i * 7919 % windows for i in own)]
    for chunk in chunks:
        chunk.zero_grad_buffer()
    optimizer.zero_grad()
    given = get_forward_backward_func()(
        forward_step_func=forward_step, data_iterator=[iter(batches) for _ in chunks], model=chunks, num_microbatches=count,
        seq_length=options.context, micro_batch_size=train.MICRO_BATCH, forward_only=False,
    )  # fmt: skip
    mean = torch.tensor([sum(float(loss) for loss in given) / count])
    dist.all_reduce(mean)
    if run and not said.untold:
        run.report(mean.item(), own)
    updated, norm, _ = optimizer.step()
    if updated:
        scheduler.step(microbatches.get_current_running_global_batch_size())
    losses.extend((mean.item(), float(norm)))


if PLAIN:
    for k in range(1, STEPS + 1):
        if k in bad:
            begin_step(k)
        else:
            step(k)
        consumed += microbatches.get_current_running_global_batch_size()
else:
    run.train(step, STEPS)

parts_of = getattr(optimizer, "chained_optimizers", [optimizer])
moments = [value for one in parts_of for kept in one.optimizer.state.values() for value in kept.values() if isinstance(value, torch.Tensor)]
mains = [parameter for one in parts_of for group in one.optimizer.param_groups for parameter in group["params"]]
leave(said.folder, {"weights": {"all": digest(*(p.float() for chunk in chunks for p in chunk.parameters())), "updated": digest(*(p.float() for p in mains))},
                    "moments": {"all": digest(*(value.float() for value in moments))}, "losses": {"all": losses},
                    "schedule": {"steps": scheduler.num_steps, "rates": [group["lr"] for one in parts_of for group in one.optimizer.param_groups]},
                    "samples": {"consumed": consumed if state is None else state.consumed_samples, "batch": microbatches.get_current_running_global_batch_size()},
                    "random": {"torch": digest(torch.get_rng_state()), **{name: digest(value if isinstance(value, torch.Tensor) else value.get_state())
                                                                         for name, value in get_cuda_rng_tracker().get_states().items()}}})  # fmt: skip
