"""What Megatron keeps beside tensors, as objects of the run: each is taken at the gate of a step, and put back where one begins anew.

With other ranks, or at another TP x PP x DP, an object goes on as it says in `protected.py`; those that take over by a function of their
own have a method `take_over`.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from .._errors import Error
from ..abi import Code
from ..randomness import mixed_seed
from ..torch.optimizers import OptimizerGroups
from .core import Core


_SCHEDULER = "opt_param_scheduler"
_EXTRA_STATE = "_extra_state"  # torch's name for it


class ParamScheduler:
    """OptimizerParamScheduler. It is advanced behind the gate, by the samples of the step: done again after a restore."""

    def __init__(self, scheduler: Any, increment: Callable[[], int]) -> None:
        self._scheduler = scheduler
        self._increment = increment
        self._unusual: int | None = None  # by how much the newest step advanced it, where that was not its samples
        self._at_gate: tuple[int, int] | None = None

    def end_step(self) -> None:
        if self._at_gate is not None:
            before, increment = self._at_gate
            late = self._scheduler.num_steps - before
            self._unusual = None if late == increment else late
        self._at_gate = None

    def note_gate(self, has_update: bool) -> None:
        self._at_gate = (self._scheduler.num_steps, self._increment()) if has_update else None

    def state_dict(self) -> dict[str, Any]:
        """Values: what Megatron's own checkpoints have of it, as it is once the step whose gate was passed has ended."""
        follows = 0
        if self._at_gate is not None:
            follows = self._at_gate[1] if self._unusual is None else self._unusual
        kept = {**self._scheduler.state_dict(), "num_steps": self._scheduler.num_steps + follows, "unusual": self._unusual}
        return {f"{_SCHEDULER}.{name}": value for name, value in kept.items()}

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        if "at" in kept:  # as version 0.1.0 saved it
            num_steps, self._unusual = kept["at"] + kept["follows"], kept["unusual"]
        else:
            num_steps, self._unusual = kept[f"{_SCHEDULER}.num_steps"], kept[f"{_SCHEDULER}.unusual"]
        self._scheduler.num_steps = num_steps
        self._scheduler.step(0)  # learning rates and weight decay of that place
        self._at_gate = None


class Samples:
    """How many samples the steps that are done have consumed."""

    def __init__(self, consumed: int, batch: Callable[[], int]) -> None:
        self._consumed = consumed
        self._batch = batch
        self._passed = 0  # of the step whose gate was passed

    @property
    def consumed(self) -> int:
        return self._consumed + self._passed

    def end_step(self) -> None:
        self._consumed, self._passed = self.consumed, 0

    def note_gate(self) -> None:
        self._passed = self._batch()

    def state_dict(self) -> dict[str, Any]:
        return {"consumed_samples": self.consumed}

    def load_state_dict(self, kept: dict[str, Any] | int) -> None:
        self._consumed, self._passed = kept if isinstance(kept, int) else kept["consumed_samples"], 0  # an int: of version 0.1.0


class Fixed:
    """What a script has set up, for the readers of its checkpoints: a run goes on with its own."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        return self._state

    def load_state_dict(self, kept: dict[str, Any]) -> None: ...


# Of a TransformerConfig, by the names that Megatron's arguments have.
_ARGUMENTS = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "kv_channels", "num_query_groups", "normalization",
              "layernorm_epsilon", "add_bias_linear", "add_qkv_bias", "qk_layernorm", "attention_dropout", "hidden_dropout", "bf16", "fp16",
              "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size", "sequence_parallel",
              "context_parallel_size", "expert_model_parallel_size")  # fmt: skip
_OF_ONE_RANK = ("rank", "local_rank")


def arguments(core: Core, chunk: Any, ddp_config: Any) -> dict[str, Any]:
    """What Megatron's load_checkpoint compares with its own arguments, as the model says it."""
    config = chunk.config
    vocabulary, length = getattr(chunk, "vocab_size", None), getattr(chunk, "max_sequence_length", None)
    positions = getattr(chunk, "position_embedding_type", None)
    found = {
        **{name: getattr(config, name, None) for name in _ARGUMENTS},
        "swiglu": getattr(config, "gated_linear_unit", None),
        "num_experts": getattr(config, "num_moe_experts", None),
        "padded_vocab_size": vocabulary,
        "max_position_embeddings": length,
        "position_embedding_type": positions,
        "add_position_embedding": None if positions is None else positions == "learned_absolute",
        "untie_embeddings_and_output_weights": not getattr(chunk, "share_embeddings_and_output_weights", False),
        "use_distributed_optimizer": ddp_config.use_distributed_optimizer,
        # Which names its layer norms have, where checkpoints do not say.
        "transformer_impl": "local" if any(name.endswith("input_layernorm.weight") for name, _ in chunk.named_parameters()) else "transformer_engine",
        "data_parallel_size": core.parallel_state.get_data_parallel_world_size(),
    }
    return {name: value for name, value in found.items() if value is None or isinstance(value, (bool, int, float, str))}


def plain(args: Any) -> dict[str, Any]:
    """What of a namespace is a value, and the same on all ranks."""
    if args is None:
        return {}
    return {name: value for name, value in vars(args).items()
            if name not in _OF_ONE_RANK and (value is None or isinstance(value, (bool, int, float, str)))}  # fmt: skip


def rank(core: Core, chunks: Iterable[Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """Where this rank stands, and which extra states of its modules are None: Megatron's loader asks for each of them."""
    state = core.parallel_state
    return {
        "no_extra_state": [value.unique_key for _, _, value in _extra_states(core, chunks, metadata) if value.data is None],
        "pipeline": state.get_pipeline_model_parallel_rank(), "pipelines": state.get_pipeline_model_parallel_world_size(),
        "tensor": state.get_tensor_model_parallel_rank(), "tensors": state.get_tensor_model_parallel_world_size(),
        "data": state.get_data_parallel_rank(with_context_parallel=True),
    }  # fmt: skip


class RngTracker:
    """Megatron's named states of random generators (tensor parallel ranks draw other numbers in some places, the same in others)."""

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {name: value.get_state() if isinstance(value, torch.Generator) else value for name, value in self._tracker.get_states().items()}

    def load_state_dict(self, kept: dict[str, torch.Tensor]) -> None:
        states = dict(self._tracker.get_states())
        for name, value in kept.items():
            if isinstance(states.get(name), torch.Generator):
                states[name].set_state(value)
            else:
                states[name] = value
        self._tracker.set_states(states)


    def take_over(self, saved: Mapping[int, dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """New streams, as of torch's generator (kintsugi/randomness.py): what was seeded alike stays alike."""
        then = next(iter(saved.values()))
        return {name: _new_stream(state, then.get(name)) for name, state in self.state_dict().items()}


_CUDA_BYTES = 16  # a CUDA generator's state: its seed, and how far it has drawn (ATen's CUDAGeneratorImpl)


def _new_stream(own: torch.Tensor, then: torch.Tensor | None) -> torch.Tensor:
    seed = mixed_seed(own.numpy().tobytes(), b"" if then is None else then.numpy().tobytes())
    if own.numel() == _CUDA_BYTES:
        return torch.frombuffer(bytearray(struct.pack("<QQ", seed, 0)), dtype=torch.uint8)
    fresh = torch.Generator().manual_seed(seed).get_state()
    if own.numel() != fresh.numel():
        raise Error(f"Megatron's tracker holds a random state of {own.numel()} bytes: neither the host's nor a CUDA device's; with other ranks it cannot be given a new stream",
                    Code.FAILED_PRECONDITION)  # fmt: skip
    return fresh


class Microbatches:
    """The calculator of microbatches, which a growing batch moves."""

    def __init__(self, calculator: Any, consumed: Callable[[], int]) -> None:
        self._calculator = calculator
        self._consumed = consumed

    def state_dict(self) -> dict[str, Any]:
        return {"calculator": dict(vars(self._calculator)), "consumed": self._consumed()}

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        vars(self._calculator).update(kept["calculator"])

    def take_over(self, saved: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
        """This run's own, for its data parallel size, after as many samples."""
        then = next(iter(saved.values()))
        moved = copy.copy(self._calculator)
        moved.update(then["consumed"], False)
        return {"calculator": dict(vars(moved)), "consumed": then["consumed"]}


class Rerun:
    """The rerun state machine: what it has found, and how far it has counted. What it does within a step begins anew with it."""

    _NAMES = ("mode", "current_iteration", "first_iteration_complete", "rerun_requested", "checkpoint_requested", "restart_again_requested",
              "continue_requested", "failed_validation_call", "initial_result", "suspicious_node", "suspicious_device",
              "large_value_counts", "max_values")  # fmt: skip

    def __init__(self, machine: Any, states: Any) -> None:
        self._machine = machine
        self._states = states

    def state_dict(self) -> dict[str, Any]:
        found = {name: getattr(self._machine, name) for name in self._NAMES}
        return {**found, "error_injector": self._machine.error_injector.state_dict()}

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        for name in self._NAMES:
            setattr(self._machine, name, kept[name])
        self._machine.error_injector.load_state_dict(kept["error_injector"])
        self._machine.state = self._states.NOT_RUNNING_YET
        self._machine.saved_state = None
        self._machine.validation_counts.clear()


    def take_over(self, saved: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
        """It has counted as far as rank 0's; what others had found of their devices is not known of these."""
        then = next(iter(saved.values()))
        return {**self.state_dict(), **{name: then[name] for name in ("current_iteration", "first_iteration_complete")}}


class Scalers:
    """Loss scales of fp16: moved before the gate, by whether gradients were finite."""

    def __init__(self, parts: list[Any]) -> None:
        self._scalers = [part.grad_scaler for part in parts if getattr(part, "grad_scaler", None)]

    def __bool__(self) -> bool:
        return bool(self._scalers)

    def state_dict(self) -> list[Any]:
        return [scaler.state_dict() for scaler in self._scalers]

    def load_state_dict(self, kept: list[Any]) -> None:
        for scaler, one in zip(self._scalers, kept):
            scaler.load_state_dict(one)


class ExtraState:
    """A module's extra state (fp8 scales), one cell of the grid that Megatron's sharded_state_dict places it in."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module

    def state_dict(self) -> Any:
        return self._module.get_extra_state()

    def load_state_dict(self, kept: Any) -> None:
        self._module.set_extra_state(kept)


def extra_states(core: Core, chunks: Iterable[Any], metadata: dict[str, Any]) -> Iterator[tuple[str, tuple[Sequence[int], Sequence[int]], ExtraState]]:
    """Key, (place, shape) and module of each extra state that is not None, as the chunks' sharded_state_dict has them."""
    for chunk, name, value in _extra_states(core, chunks, metadata):
        if value.data is not None:
            module = chunk.get_submodule(name.removesuffix(_EXTRA_STATE).rstrip("."))
            yield value.key, (tuple(value.global_offset), tuple(value.global_shape)), ExtraState(module)


def _extra_states(core: Core, chunks: Iterable[Any], metadata: dict[str, Any]) -> Iterator[tuple[Any, str, Any]]:
    for chunk in chunks:
        for name, value in chunk.sharded_state_dict(metadata=dict(metadata)).items():
            if isinstance(value, core.ShardedObject) and name.endswith(_EXTRA_STATE):
                yield chunk, name, value


class Settings(OptimizerGroups):
    """Of one of Megatron's optimizers: its groups of parameters, of which a stage of a pipeline may have none."""

    _NAMES = ("wd_mult", "lr_mult", "is_expert_parallel", "is_decoupled_lr")  # by which Megatron itself tells them apart

    def take_over(self, saved: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
        """Each group as any rank saved it; one that no rank had stays as it is made."""
        known = {self._name(group): group for state in [*saved.values()][::-1] for group in state["groups"]}
        return {"groups": [known.get(self._name(group), group) for group in self.state_dict()["groups"]]}

    def _name(self, group: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(group.get(name, group.get(f"pre_{name}")) for name in self._NAMES)


def rng_tracker(core: Core) -> RngTracker | None:
    tracker = core.random._CUDA_RNG_STATE_TRACKER
    return RngTracker(tracker) if tracker is not None and tracker.is_initialized() else None


def microbatches(core: Core, consumed: Callable[[], int]) -> Microbatches | None:
    calculator = core.microbatches._GLOBAL_NUM_MICROBATCHES_CALCULATOR
    return None if calculator is None else Microbatches(calculator, consumed)


def grow(core: Core, consumed: int) -> None:
    """The batch is what it is behind so many samples, as Megatron's update_num_microbatches makes it."""
    if (calculator := core.microbatches._GLOBAL_NUM_MICROBATCHES_CALCULATOR) is not None:
        calculator.update(consumed, False)


def rerun(core: Core) -> Rerun | None:
    machine = core.rerun._GLOBAL_RERUN_STATE_MACHINE
    return None if machine is None else Rerun(machine, core.rerun.RerunState)


def batch_size(core: Core, given: int | Callable[[], int] | None) -> Callable[[], int]:
    """How many samples a step consumes, over all ranks."""
    if callable(given):
        return given
    if given is not None:
        return lambda: given
    if core.microbatches._GLOBAL_NUM_MICROBATCHES_CALCULATOR is None:
        raise Error("how many samples a step consumes is not known: call megatron's init_num_microbatches_calculator before, or name "
                    "global_batch_size", Code.INVALID_ARGUMENT)  # fmt: skip
    return lambda: int(core.microbatches.get_current_running_global_batch_size())
