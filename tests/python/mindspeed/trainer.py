"""One rank of a run of MindSpeed-LLM's pretrain() with its high-availability client: a GPT of two layers, bf16, on the CPU.

Megatron's training code and the client are the real ones. Ours: arguments, a data set, a model provider as pretrain_gpt.py has one,
and faults. Imported once by world.py, whose children are the ranks.
"""
import argparse
import hashlib
import os
import signal
import sys
import time

import torch

# As MindSpeed's basic feature does: nothing is compiled.
torch.compile = lambda function=None, *_, **__: function if function is not None else (lambda given: given)

import absent  # noqa: E402

absent.install()
import torch_npu  # noqa: E402
from torch_npu.contrib import transfer_to_npu  # noqa: E402,F401

os.environ["TRAINING_BACKEND"] = "stand-in"  # mindspeed_llm's switch: its features for kernels are not registered on import
os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"

# Megatron first: what MindSpeed-LLM looks up of it must not be what it was made with.
import apex.optimizers  # noqa: E402
import megatron.training.initialize  # noqa: E402
import megatron.training.training  # noqa: E402,F401
from megatron.core import mpu  # noqa: E402
from megatron.core.enums import ModelType  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.training import get_args  # noqa: E402
from megatron.training.arguments import core_transformer_config_from_args  # noqa: E402
from mindspeed_llm.core.high_availability import tft_dump  # noqa: E402
import mindspeed_llm.training.training as training  # noqa: E402
from mindspeed.core.fp8_utils import quantize_param_shard  # noqa: E402
from mindspeed.patch_utils import MindSpeedPatchesManager  # noqa: E402
from mindspeed_llm.training.arguments import process_args_v2  # noqa: E402
from mindspeed_llm.features_manager.high_availability.high_availability import HighAvailabilityFeature  # noqa: E402
from mindio_ttp._kintsugi.session import SESSION  # noqa: E402

SEQUENCE, VOCABULARY = 16, 64
TEXTS = {"uce-high": "UCE ERROR", "uce-low": "UCE ERROR", "hccl": "HCCL OP RETRY FAILED", "runtime": "the loss is not a number",
         "precision": "PRECISION ERROR, the loss is not a number", "precision-2": "PRECISION ERROR, load ckpt step=2"}
MODEL = f"""--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length {SEQUENCE} --max-position-embeddings {SEQUENCE}
  --position-embedding-type rope --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0
  --tokenizer-type NullTokenizer --vocab-size {VOCABULARY - 1} --make-vocab-size-divisible-by 1 --transformer-impl local
  --no-masked-softmax-fusion --no-gradient-accumulation-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion --no-rope-fusion
  --micro-batch-size 1 --global-batch-size 8 --lr 1e-2 --min-lr 1e-3 --lr-decay-style cosine --lr-warmup-fraction 0.01
  --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --bf16 --use-distributed-optimizer --overlap-grad-reduce
  --ckpt-format torch --save-interval 1000 --eval-interval 1000 --eval-iters 0 --log-interval 1 --num-workers 0
  --dataloader-type single --distributed-backend nccl --distributed-timeout-minutes 2"""

class Samples(torch.utils.data.Dataset):
    """Numbers that follow from their place, with something to be learned in them."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        made = torch.Generator().manual_seed(index)
        start = torch.randint(VOCABULARY, (1,), generator=made)
        return {"text": (start + 7 * torch.arange(SEQUENCE + 1) + torch.randint(2, (SEQUENCE + 1,), generator=made)) % VOCABULARY}


class Faults:
    """KIND:RANK@STEP:PHASE, each once in a run, whichever process is the rank then. "pause" is none: the scheduler is given its sign, and
    the step, for which all others need this rank, goes on once they have been told to stand still at its end."""

    def __init__(self, planned, rank, out):
        self.rank, self.out, self.planned = rank, out, []
        for number, text in enumerate(planned):
            kind, _, place = text.partition(":")
            victim, _, place = place.partition("@")
            step, _, phase = place.partition(":")
            self.planned.append((f"{out}/struck.{number}", kind, int(victim), int(step), phase))

    def strike(self, phase):
        for mark, kind, rank, step, where in self.planned:
            if (rank, step, where) != (self.rank, get_args().curr_iteration + 1, phase) or os.path.exists(mark):
                continue
            open(mark, "w", encoding="utf-8").close()
            if kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "pause":
                while not os.path.exists(f"{self.out}/asked"):
                    time.sleep(0.01)
                time.sleep(1)
                return
            if kind == "value":
                raise ValueError("the data is crooked")
            torch_npu.npu.uce_level = 2 if kind == "uce-low" else 3
            if kind in ("uce-high", "precision", "precision-2"):
                self.lose()
            raise RuntimeError(TEXTS[kind])

    @staticmethod
    def lose():
        """What this rank has of the optimizer's state."""
        optimizer = apex.optimizers.made[-1]
        for group in optimizer.param_groups:
            for param in group["params"]:
                for tensor in (param, *optimizer.state[param].values()):
                    tensor.data.fill_(float("nan"))


def model_provider(pre_process=True, post_process=True):
    args = get_args()
    config = core_transformer_config_from_args(args)
    config.save = args.save  # MindSpeed's own feature gives it every argument; the client's save looks at this one
    return GPTModel(
        config=config, transformer_layer_spec=get_gpt_layer_local_spec(None, False, False, False, False),
        vocab_size=args.padded_vocab_size, max_sequence_length=args.max_position_embeddings, pre_process=pre_process, post_process=post_process,
        parallel_output=True, share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        position_embedding_type=args.position_embedding_type, rotary_percent=args.rotary_percent)


def data_provider(_numbers):
    return Samples(), None, None


def loss_of(output):
    """The sum over tokens, their number, and both over all ranks: as pretrain_gpt.py gives them."""
    tokens = torch.tensor(float(output.numel()))
    loss = torch.stack([output.float().sum(), tokens])
    told = loss.clone().detach()
    torch.distributed.all_reduce(told, group=mpu.get_data_parallel_group())
    return loss[0].clone(), tokens.to(torch.int), {"lm loss": (told[0], told[1])}


def forward_step_with(faults):
    def forward_step(data_iterator, model):
        faults.strike("forward")
        text = next(data_iterator)["text"]
        tokens, labels = text[:, :-1].contiguous(), text[:, 1:].contiguous()
        places = torch.arange(SEQUENCE).expand_as(tokens)
        mask = torch.triu(torch.ones(1, 1, SEQUENCE, SEQUENCE), diagonal=1).bool()
        return model(tokens, places, mask, labels=labels), loss_of
    return forward_step


def patch(options):
    """The client's own feature, applied by MindSpeed's own manager."""
    feature, manager = HighAvailabilityFeature(), MindSpeedPatchesManager
    feature.pre_register_patches(manager, options)
    feature.register_patches(manager, options)
    # Of its basic features the one without which bf16 needs TransformerEngine.
    manager.register_patch("megatron.core.fp8_utils.quantize_param_shard", quantize_param_shard)
    manager.apply_patches()
    # The data sets' index builder and fused kernels are C++ that this run does not call.
    megatron.training.initialize._compile_dependencies = torch.distributed.barrier


def strike_in_dump(faults):
    """While a dump is being written: the savers have their parts together, and no file is there yet."""
    write = tft_dump.save_checkpoint

    def save_checkpoint(*given):
        faults.strike("save")
        write(*given)

    tft_dump.save_checkpoint = save_checkpoint


def digest():
    """Of the model's parameters and the optimizer's state on this rank."""
    found, optimizer = hashlib.sha256(), apex.optimizers.made[-1]
    tensors = [*MODELS[-1].parameters()]
    for group in optimizer.param_groups:
        for param in group["params"]:
            tensors += [param, optimizer.state[param]["exp_avg"], optimizer.state[param]["exp_avg_sq"]]
    for tensor in tensors:
        found.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


MODELS = []


def main(arguments):
    """OUT_FOLDER [--fault F]... [Megatron's options]"""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--fault", action="append", default=[])
    own, given = parser.parse_known_args(arguments)
    torch.set_num_threads(1)
    sys.argv = ["pretrain_gpt.py", *MODEL.split(), "--enable-high-availability", *given]
    patch(process_args_v2(argparse.ArgumentParser(allow_abbrev=False)).parse_known_args()[0])
    rank = int(os.environ["RANK"])
    faults = Faults(own.fault, rank, own.out)
    apex.optimizers.inside_update.append(lambda: faults.strike("update"))
    strike_in_dump(faults)
    tell = open(f"{own.out}/losses.{rank}", "a", buffering=1, encoding="utf-8")
    log = training.training_log

    def training_log(losses, total, rate, other_rate, iteration, *more):
        tell.write(f"{iteration} {losses['lm loss'].item().hex()} {rate!r} {more[3]!r}\n")
        return log(losses, total, rate, other_rate, iteration, *more)

    def provide(*a, **k):
        MODELS.append(model_provider(*a, **k))
        return MODELS[-1]

    training.training_log = training_log
    training.pretrain(data_provider, provide, ModelType.encoder_or_decoder, forward_step_with(faults), extra_args_provider=process_args_v2)
    print(f"rank {rank} ends with {digest()}", flush=True)
