"""Megatron-core's GPT, tensor and pipeline parallel, that survives: the lines that mention `run` or `kintsugi` are all that is added.

  kintsugi run --nproc 4 --inject kill:2@5:backward -- python train.py --tensor 2 --steps 20
  kintsugi run --nproc 4 --inject kill:2@5:update -- python train.py --distributed --instances 2
  kintsugi run --nproc 4 --snapshot-every 5 --inject kill:2@5:update -- python train.py --distributed --bf16 --overlap
  kintsugi run --nproc 4 --save-every 50 --save-dir saves --save-format megatron -- python train.py --tensor 2 --steps 50
  kintsugi run --nproc 8 --resume saves -- python train.py --tensor 2 --pipeline 2

Without CUDA it runs on the CPU over Gloo, where Megatron is told that the CPU is its device.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import kintsugi.megatron
import kintsugi.torch

kintsugi.megatron.use_cpu()  # before megatron

from megatron.core import parallel_state  # type: ignore # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads  # type: ignore # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # type: ignore # noqa: E402
from megatron.core.models.gpt.gpt_model import GPTModel  # type: ignore # noqa: E402
from megatron.core.num_microbatches_calculator import get_num_microbatches, init_num_microbatches_calculator  # type: ignore # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # type: ignore # noqa: E402
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler  # type: ignore # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # type: ignore # noqa: E402
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed  # type: ignore # noqa: E402
from megatron.core.transformer.module import Float16Module  # type: ignore # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # type: ignore # noqa: E402

TEXT = Path("/usr/share/common-licenses")  # what every Debian system carries, as byte_lm's
MICRO_BATCH = 1


def build_chunk(config: Any, options: argparse.Namespace, chunk: int) -> Any:
    stage = chunk if options.virtual > 1 else None
    model = GPTModel(
        config, get_gpt_layer_local_spec(), vocab_size=256, max_sequence_length=options.context,
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage),
        share_embeddings_and_output_weights=True, vp_stage=stage,
    )  # fmt: skip
    model.cuda(torch.cuda.current_device())
    return Float16Module(config, model) if options.bf16 else model


def build(options: argparse.Namespace) -> tuple[list[Any], Any, Any]:
    """As a trainer of Megatron's does; nothing here knows of Kintsugi."""
    kind = torch.bfloat16 if options.bf16 else torch.float32
    config = TransformerConfig(
        num_layers=4, hidden_size=options.width, num_attention_heads=4, use_cpu_initialization=True, add_bias_linear=False,
        gated_linear_unit=True, tensor_model_parallel_size=options.tensor, pipeline_model_parallel_size=options.pipeline,
        virtual_pipeline_model_parallel_size=options.virtual if options.virtual > 1 else None,
        params_dtype=kind, pipeline_dtype=kind, bf16=options.bf16, persist_layer_norm=False, masked_softmax_fusion=False,
        bias_activation_fusion=False, bias_dropout_fusion=False, apply_rope_fusion=False, gradient_accumulation_fusion=False,
        hidden_dropout=options.dropout, attention_dropout=options.dropout,
        # Between two stages an interleaved schedule sends both ways to one neighbour: batched, Megatron takes one for the other.
        batch_p2p_comm=options.virtual == 1, overlap_p2p_comm=options.virtual > 1,
    )  # fmt: skip
    overlap = options.overlap and options.distributed
    chunks = [DistributedDataParallel(
        config,
        DistributedDataParallelConfig(use_distributed_optimizer=options.distributed, grad_reduce_in_fp32=options.bf16, bucket_size=5000,
                                      overlap_grad_reduce=options.overlap, overlap_param_gather=overlap,
                                      num_distributed_optimizer_instances=options.instances),
        build_chunk(config, options, chunk), disable_bucketing=chunk > 0,
    ) for chunk in range(options.virtual)]  # fmt: skip
    for chunk in chunks:
        chunk.broadcast_params()
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=3e-3, min_lr=3e-4, clip_grad=1.0, bf16=options.bf16, params_dtype=kind,
                        use_distributed_optimizer=options.distributed, overlap_param_gather=overlap),
        chunks, use_gloo_process_groups=False,
    )  # fmt: skip
    config.finalize_model_grads_func = finalize_model_grads
    if options.overlap:
        config.no_sync_func = [chunk.no_sync for chunk in chunks] if options.virtual > 1 else chunks[0].no_sync
    samples = 200 * options.batch
    scheduler = OptimizerParamScheduler(optimizer, 0.0, 3e-3, 3e-4, samples // 10, samples, "cosine", 0.01, 0.01, samples, "constant")
    return chunks, optimizer, scheduler


def forward_step(batches: Iterator[Tensor], model: Any) -> tuple[Tensor, Any]:
    batch = next(batches).cuda()
    tokens, labels = batch[:, :-1], batch[:, 1:]
    output = model(tokens, torch.arange(tokens.shape[1], device=batch.device).expand_as(tokens), None, labels=labels)

    def loss_of(losses: Tensor) -> tuple[Tensor, Tensor]:
        mean = losses.float().mean()
        return mean, mean.detach().clone()  # Megatron divides the first by the number of microbatches, where it lies

    return output, loss_of


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor", type=int, default=1)
    parser.add_argument("--pipeline", type=int, default=1)
    parser.add_argument("--virtual", type=int, default=1, help="chunks of the model in each stage: the interleaved schedule")
    parser.add_argument("--distributed", action="store_true", help="DistributedOptimizer")
    parser.add_argument("--instances", type=int, default=1, help="of the DistributedOptimizer: so many copies of each shard (needs einops)")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--overlap", action="store_true", help="gradients (and parameters, where --distributed) beside computation")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--batch", type=int, default=8, help="samples of a step, over all ranks")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    torch.set_num_threads(1)  # several would add up in another order, now and then
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())

    run = kintsugi.torch.join()
    dist.init_process_group("kintsugi")
    parallel_state.initialize_model_parallel(options.tensor, options.pipeline, options.virtual if options.virtual > 1 else None,
                                             create_gloo_process_groups=False, num_distributed_optimizer_instances=options.instances)  # fmt: skip
    part, parts = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
    init_num_microbatches_calculator(dist.get_rank(), None, options.batch, MICRO_BATCH, parts)
    torch.manual_seed(2 + part)  # dropout is as different as the data is
    model_parallel_cuda_manual_seed(1)
    chunks, optimizer, scheduler = build(options)
    state = kintsugi.megatron.protect(run, chunks, optimizer, scheduler)
    if run.rank == 0 and not run.replaces:
        print(run.plan())

    text = torch.frombuffer(bytearray(b"".join(p.read_bytes() for p in sorted(TEXT.iterdir()) if p.is_file())), dtype=torch.uint8)
    windows = (len(text) - 1) // options.context
    forward_backward = get_forward_backward_func()

    def step(k: int) -> None:
        count = get_num_microbatches()
        first = state.consumed_samples + part * count * MICRO_BATCH
        samples = range(first, first + count * MICRO_BATCH)
        batches = [text[w * options.context : (w + 1) * options.context + 1][None].long() for w in (i * 7919 % windows for i in samples)]
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        losses = forward_backward(
            forward_step_func=forward_step, data_iterator=[iter(batches) for _ in chunks], model=chunks, num_microbatches=count,
            seq_length=options.context, micro_batch_size=MICRO_BATCH, forward_only=False,
        )  # fmt: skip
        # A pipeline's last stage has the loss, the others consumed the same samples: its mean, as Megatron logs it.
        mean = torch.tensor([sum(float(loss) for loss in losses) / count])
        dist.all_reduce(mean)
        run.report(loss=mean.item() / (parts * options.tensor), samples=samples)
        updated, _, _ = optimizer.step()
        if updated:
            scheduler.step(options.batch)

    run.train(step, steps=options.steps)


if __name__ == "__main__":
    main()
