"""kintsugi.megatron without a run: what is read from Megatron, what is put back, what is refused. A world of one rank."""
import importlib.metadata
import pickle
import types

import torch
import torch.distributed as dist

import kintsugi
from kintsugi.megatron import boxes, core, objects, protected, resets, use_cpu
from kintsugi.megatron.update import Update


def refused(words, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kintsugi.Error as error:
        assert words in str(error), f"'{words}' is not in '{error}'"
        return
    raise AssertionError(f"not refused: {words}")


# Versions.
true_version = importlib.metadata.version
importlib.metadata.version = lambda name: "0.12.1"
refused("megatron-core 0.12.1 is not supported", core.check_version)


def missing(name):
    raise importlib.metadata.PackageNotFoundError(name)


importlib.metadata.version = missing
refused("pip install megatron-core==0.16.1", core.check_version)
importlib.metadata.version = true_version

assert use_cpu() is not torch.cuda.is_available()
assert use_cpu() is not torch.cuda.is_available(), "the second call does nothing"
found = core.Core()
refused("initialize_model_parallel comes before", boxes.Grid, found)

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
found.parallel_state.initialize_model_parallel(create_gloo_process_groups=False)

from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.models.gpt.gpt_model import GPTModel  # noqa: E402
from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler  # noqa: E402
from megatron.core.rerun_state_machine import RerunState, get_rerun_state_machine  # noqa: E402
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker, model_parallel_cuda_manual_seed  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

model_parallel_cuda_manual_seed(1)


def build(bf16, distributed):
    kind = torch.bfloat16 if bf16 else torch.float32
    config = TransformerConfig(num_layers=2, hidden_size=16, num_attention_heads=2, use_cpu_initialization=True, gated_linear_unit=True,
                               add_bias_linear=False, persist_layer_norm=False, bf16=bf16, params_dtype=kind,
                               masked_softmax_fusion=False, bias_activation_fusion=False, bias_dropout_fusion=False)
    model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=32, max_sequence_length=8)
    model = Float16Module(config, model) if bf16 else model
    ddp = DistributedDataParallel(config, DistributedDataParallelConfig(use_distributed_optimizer=distributed, grad_reduce_in_fp32=bf16), model)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=0.1, min_lr=0.0, bf16=bf16, params_dtype=kind,
                                                       use_distributed_optimizer=distributed), [ddp], use_gloo_process_groups=False)
    return ddp, protected._innermost(found, ddp), optimizer


def chunk_of(batched):
    return types.SimpleNamespace(config=types.SimpleNamespace(batch_p2p_comm=batched))


refused("set batch_p2p_comm=False and overlap_p2p_comm=True", protected._refuse_swapped, 2, [chunk_of(True)] * 2)
for stages, chunks in [(2, [chunk_of(True)]), (2, [chunk_of(False)] * 2), (4, [chunk_of(True)] * 2)]:
    protected._refuse_swapped(stages, chunks)

# Every parameter, and each state of it, is registered once and whole; gated layers in two parts, which are views of it.
grid = boxes.Grid(found)
for bf16 in (False, True):
    for distributed in (False, True):
        ddp, chunk, optimizer = build(bf16, distributed)
        update = Update(found, optimizer)
        before = [p.detach().clone() for p in chunk.parameters()]
        update.materialise(lambda: 0)
        assert all(torch.equal(a, b) for a, b in zip(before, chunk.parameters())), "making the states moved a parameter"
        entries = list(update.entries(boxes.placed_parameters(found, grid, [chunk]), grid))
        keys = [key for key, _, _ in entries]
        assert len(set(keys)) == len(keys), keys
        total = sum(p.numel() for p in chunk.parameters())
        for prefix in ("", "optimizer.state.exp_avg.", "optimizer.state.exp_avg_sq.", *(["optimizer.state.fp32_param."] if bf16 else [])):
            own = [(k, t, p) for k, t, p in entries if k.startswith(prefix) and (prefix or not k.startswith("optimizer."))]
            assert sum(tensor.numel() for _, tensor, _ in own) == total, (prefix, bf16, distributed)
            for key, tensor, piece in own:
                assert piece.flat == (0, 0) and torch.Size(piece.box).numel() == tensor.numel(), (key, piece)
        storages = {}
        for key, tensor, _ in entries:
            begin = tensor.data_ptr()
            for other, (first, last) in storages.items():
                assert begin + tensor.nbytes <= first or begin >= last, f"{key} and {other} share memory"
            storages[key] = (begin, begin + tensor.nbytes)
        assert "decoder.layers.1.mlp.linear_fc1.weight_v" in keys and "decoder.layers.1.mlp.linear_fc1.weight" not in keys

# What Megatron's load_checkpoint compares comes from the model, and from the script what is a value and no rank's own.
said = objects.arguments(found, chunk, ddp.ddp_config)
assert (said["num_layers"], said["hidden_size"], said["max_position_embeddings"], said["transformer_impl"]) == (2, 16, 8, "local"), said
assert said["use_distributed_optimizer"] and said["untie_embeddings_and_output_weights"] and said["add_position_embedding"], said
assert objects.plain(types.SimpleNamespace(lr=0.5, rank=3, params_dtype=torch.bfloat16, save=None)) == {"lr": 0.5, "save": None}
assert objects.plain(None) == {}
stands = objects.rank(found, [chunk], boxes.METADATA)
assert "decoder.layers.1.mlp.linear_fc2._extra_state/shard_0_1" in stands["no_extra_state"] and stands["tensors"] == 1, stands

# A module's extra state is the cell in which Megatron places it, and comes back.
class Scaled(type(chunk.decoder.layers[1].mlp.linear_fc2)):
    def get_extra_state(self):
        return getattr(self, "scale", None)

    def set_extra_state(self, scale):
        self.scale = scale


assert not list(objects.extra_states(found, [chunk], boxes.METADATA)), "no module has any"
for number, layer in enumerate(chunk.decoder.layers):
    layer.mlp.linear_fc2.__class__ = Scaled
    layer.mlp.linear_fc2.scale = torch.tensor([float(number)])
states = list(objects.extra_states(found, [chunk], boxes.METADATA))
wanted = [(f"decoder.layers.{number}.mlp.linear_fc2._extra_state", ((0,), (1,))) for number in range(2)]
assert [(key, cell) for key, cell, _ in states] == wanted, states
kept = [state.state_dict() for _, _, state in states]
states[0][2].load_state_dict(kept[1])
assert torch.equal(chunk.decoder.layers[0].mlp.linear_fc2.scale, torch.ones(1))

# A shard of a parameter is a flat range of its parts.
parameter = torch.arange(24.0).view(4, 6)
placed = boxes.Placed(parameter, (boxes.Part("w", (2, 6), (0, 0), (2, 6), 0, 12), boxes.Part("v", (2, 6), (0, 0), (2, 6), 12, 24)), False)
cut = list(boxes.entries_of(placed, "m.", parameter.view(-1)[5:24], 5, (0,)))
assert [(key, tensor.tolist()[0], tensor.numel(), piece.flat) for key, tensor, piece in cut] == [("m.w", 5.0, 7, (5, 12)), ("m.v", 12.0, 12, (0, 0))]
cut = list(boxes.entries_of(placed, "m.", parameter.view(-1)[13:20], 13, (0,)))
assert [(key, tensor.tolist()[0], piece.flat) for key, tensor, piece in cut] == [("m.v", 13.0, (1, 8))], cut

# Who holds the same: a grid of TP 2 x DP 3 x PP 2, this rank the second of its data and of its tensor group, on the first stage.
grid.rank, grid.tensor, grid.data, grid.embedding, grid.instances = 3, (-1, 0), (-2, 0, 2), (0, 6), (0,)
plain, tied = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
tied.shared_embedding = True
part = (boxes.Part("k", (2,), (0,), (2,), 0, 2),)
assert grid.holders(boxes.Placed(plain, part, True)) == (1, 3, 5)
assert grid.holders(boxes.Placed(plain, part, False)) == (0, 1, 2, 3, 4, 5)
assert grid.holders(boxes.Placed(tied, part, True)) == (1, 3, 5, 7, 9, 11)
assert grid.holders(boxes.Placed(plain, part, True), is_sharded=True) == (3,)
assert grid.holders_of_counts(boxes.Placed(plain, part, True)) == (0, 1, 2, 3, 4, 5)
grid.check("k", (0, 0, 1), plain, True)
grid.check("k", (1, 0, 1), tied, True)
grid.check("k", (0, 1, 1), plain, False)
refused("'k': its replica_id is (0, 1, 1), where the groups say", grid.check, "k", (0, 1, 1), plain, True)
refused("'k': its replica_id is 0", grid.check, "k", 0, plain, False)

# What a broken step leaves.
ddp, chunk, optimizer = build(True, True)
chunk.config.timers = types.SimpleNamespace(_timers={"forward-backward": types.SimpleNamespace(_started=True)})
for group in ddp.bucket_groups:
    group.grad_reduce_handle = group.param_gather_handle = object()
    group.param_gather_dispatched, group.is_last_microbatch, group.is_first_batch = True, False, False
    group.per_param_grad_ready_counts = {chunk.embedding.word_embeddings.weight: 1}
    group.golden_per_param_grad_ready_counts = dict.fromkeys(group.params, 1)
for p in chunk.parameters():
    p.main_grad.fill_(3.0)
    p.grad, p.grad_added_to_main_grad = torch.ones_like(p), True
chunk.output_layer.embedding_activation_buffer = waiting = [torch.ones(2)]
resets.reset([ddp], [chunk])
for group in ddp.bucket_groups:
    left = (group.grad_reduce_handle, group.param_gather_handle, group.param_gather_dispatched, group.is_last_microbatch,
            group.is_first_batch, group.per_param_grad_ready_counts, group.golden_per_param_grad_ready_counts)
    assert left == (None, None, False, True, True, {}, {}), left
for p in chunk.parameters():
    assert p.grad is None and not p.grad_added_to_main_grad and not p.main_grad.any()
assert waiting == [] and not chunk.config.timers._timers["forward-backward"]._started


# Objects: what is taken at the gate is what the next step begins with.
def again(thing):
    return pickle.loads(pickle.dumps(thing.state_dict()))


refused("init_num_microbatches_calculator before", objects.batch_size, found, None)
assert objects.batch_size(found, 7)() == 7 and objects.batch_size(found, lambda: 9)() == 9
init_num_microbatches_calculator(0, [4, 4, 8], 12, 2, 1)
batch = objects.batch_size(found, None)
calculator = objects.microbatches(found, lambda: 0)
kept = again(calculator)
assert batch() == 4
found.microbatches.update_num_microbatches(8, consistency_check=False)
assert batch() == 12, batch()
calculator.load_state_dict(kept)
assert batch() == 4 and found.microbatches.get_num_microbatches() == 2
calculator.load_state_dict(calculator.take_over({0: {"calculator": {"num_micro_batches": 99}, "consumed": 8}}))
assert batch() == 12 and found.microbatches.get_num_microbatches() == 6, "with other ranks: as far as the samples say, for this run's ranks"
calculator.load_state_dict(kept)

schedule = OptimizerParamScheduler(optimizer, 0.0, 0.1, 0.0, 10, 1000, "linear", 0.0, 0.0, 1000, "constant")
codec = objects.ParamScheduler(schedule, batch)
samples = objects.Samples(100, batch)
for k in range(3):
    codec.end_step()
    samples.end_step()
    assert samples.consumed == 100 + 4 * k
    codec.note_gate(True)
    samples.note_gate()
    gate = again(codec), again(samples)
    schedule.step(4)
place, rate = schedule.num_steps, optimizer.param_groups[0]["lr"]
assert place == 12 and samples.consumed == 112
schedule.step(4)  # of a step that is given up
samples.end_step()
codec.load_state_dict(gate[0])
samples.load_state_dict(gate[1])
assert (schedule.num_steps, optimizer.param_groups[0]["lr"], samples.consumed) == (place, rate, 112)
codec.end_step()
codec.note_gate(False)  # skipped: loss scale
gate = again(codec)
codec.load_state_dict(gate)
assert schedule.num_steps == place
for k in range(2):  # a trainer that counts in steps: learnt
    codec.end_step()
    codec.note_gate(True)
    gate = again(codec)
    schedule.step(1)
place = schedule.num_steps
codec.load_state_dict(gate)
assert schedule.num_steps == place

tracker = objects.rng_tracker(found)
kept = again(tracker)
with get_cuda_rng_tracker().fork():
    drawn = torch.rand(3)
tracker.load_state_dict(kept)
with get_cuda_rng_tracker().fork():
    assert torch.equal(torch.rand(3), drawn)

# With other ranks: streams of the script's seed and of what was saved.
def taken_over(seed, saved):
    model_parallel_cuda_manual_seed(seed, force_reset_rng=True)
    seeded = objects.rng_tracker(found)
    seeded.load_state_dict(seeded.take_over({0: saved}))
    with get_cuda_rng_tracker().fork():
        return torch.rand(3).tolist()


ours = taken_over(1, kept)
assert ours == taken_over(1, kept) and not set(ours) & set(drawn.tolist()) and not set(ours) & set(taken_over(2, kept))
model_parallel_cuda_manual_seed(7, force_reset_rng=True)
assert not set(ours) & set(taken_over(1, objects.rng_tracker(found).state_dict()))
# A device's streams are 16 bytes; the host has none to try them with.
class Tracker:
    states = {"default": torch.arange(16, dtype=torch.uint8), "same": torch.arange(16, dtype=torch.uint8), "other": torch.ones(16, dtype=torch.uint8)}

    def get_states(self):
        return self.states


taken = objects.RngTracker(Tracker()).take_over({0: {name: torch.full((16,), 7, dtype=torch.uint8) for name in Tracker.states}})
assert torch.equal(taken["default"], taken["same"]) and not torch.equal(taken["default"], taken["other"])
assert all(state.numel() == 16 and not any(state[8:]) and state[7] < 128 for state in taken.values())
Tracker.states = {"default": torch.ones(12, dtype=torch.uint8)}
refused("a random state of 12 bytes", objects.RngTracker(Tracker()).take_over, {0: {}})

assert objects.rerun(found) is None
machine = get_rerun_state_machine()
codec = objects.rerun(found)
kept = again(codec)
machine.current_iteration, machine.state, machine.rerun_requested = 9, RerunState.INITIAL_RUN, True
machine.max_values["grads"] = 3.0
codec.load_state_dict(kept)
assert (machine.current_iteration, machine.state, machine.rerun_requested) == (-1, RerunState.NOT_RUNNING_YET, False)
assert machine.max_values == {}, machine.max_values
taken = codec.take_over({0: {**kept, "current_iteration": 9, "suspicious_node": "far"}})
assert taken["current_iteration"] == 9 and taken["suspicious_node"] is None, taken

# Settings by what a group is, whatever rank had it and in whatever order.
settings = objects.Settings(torch.optim.SGD([{"params": [plain], "wd_mult": 1.0, "lr_mult": 1.0}, {"params": [tied], "wd_mult": 0.0, "lr_mult": 1.0}], lr=1.0))
group = {"lr_mult": 1.0}
taken = settings.take_over({0: {"groups": [{**group, "wd_mult": 0.0, "lr": 0.5}], "plain": []}, 1: {"groups": [{**group, "wd_mult": 1.0, "lr": 0.25}], "plain": []}})
assert [one["lr"] for one in taken["groups"]] == [0.25, 0.5], taken
taken = settings.take_over({0: {"groups": [{**group, "wd_mult": 1.0, "lr": 0.25}], "plain": []}})
assert [one["lr"] for one in taken["groups"]] == [0.25, 1.0], taken

# Names beside the first.
keys = ["embedding.word_embeddings.weight", "optimizer.state.fp32_param.embedding.word_embeddings.weight", "decoder.w", "optimizer.state.step.decoder.w"]
untied, sharing = types.SimpleNamespace(share_embeddings_and_output_weights=False), types.SimpleNamespace(share_embeddings_and_output_weights=True)
of_embedding = ("optimizer.state.param.embedding.word_embeddings.weight", keys[1])
of_layer = ("optimizer.state.param.decoder.w", "decoder.w")
assert sorted(boxes.further_names(keys, [untied])) == [of_layer, of_embedding]
assert sorted(boxes.further_names(keys, [sharing])) == sorted([
    of_layer, of_embedding, ("output_layer.weight", keys[0]), ("optimizer.state.fp32_param.output_layer.weight", keys[1]),
    ("optimizer.state.param.output_layer.weight", keys[1])])

# Mistakes.
run = types.SimpleNamespace()
refused("kintsugi.torch.join() makes what", kintsugi.megatron.protect, run, ddp, optimizer)
make = lambda *things: protected.Protected(found, run, *things, 0, 8, None, {})  # noqa: E731
refused("model is a GPTModel: Megatron's DistributedDataParallel", make, [chunk], optimizer, None)
refused("optimizer is a AdamW, not what", make, [ddp], torch.optim.AdamW([plain]), None)
refused("opt_param_scheduler is a StepLR", make, [ddp], optimizer, torch.optim.lr_scheduler.StepLR(torch.optim.SGD([plain]), 1))
inner = optimizer.chained_optimizers[0]
for field in ("optimizer_cpu_offload", "use_precision_aware_optimizer", "overlap_param_gather_with_optimizer_step",
              "reuse_grad_buf_for_mxfp8_param_ag"):
    setattr(inner.config, field, True)
    refused(f"DistributedOptimizer cannot be protected: {field}", Update, found, optimizer)
    setattr(inner.config, field, False)
stray = build(False, False)[2]
refused("in no chunk of the model", lambda: list(Update(found, stray).entries([], grid)))
chunk.register_parameter("forgotten", torch.nn.Parameter(torch.ones(2)))
own = chunk.sharded_state_dict
chunk.sharded_state_dict = lambda **kwargs: {k: v for k, v in own(**kwargs).items() if "forgotten" not in k}
refused("forgotten: in the model, but not in its sharded_state_dict", boxes.placed_parameters, found, boxes.Grid(found), [chunk])
print("ok")
