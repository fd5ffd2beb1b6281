"""What the program asks of its process groups, marked on its way.

Every function of torch.distributed calls a method of ProcessGroup, and these are what is looked at: on the class, so that groups stay what they are. Three
call it from C++: DDP's reducer gets a group that hands its calls on, DDP's broadcasts and checks are marked as a whole, and functional collectives
(DTensor, compiled or not) where they are called in Python. What a compiled graph calls is not seen.
"""

from __future__ import annotations

import functools
import threading
import weakref
from pathlib import Path
from typing import Any, Callable

from . import marks as kinds
from .groups import UNSEEN, Groups
from .marks import Marks
from .works import Works

Asks = tuple[int, int, int, int]  # type, root, elements, tensors; -1: none
_NOTHING: Asks = (-1, -1, 0, 0)
# Methods of ProcessGroup: what they are, and which argument says what all members must say alike. Several names: of several versions of torch.
_METHODS: dict[str, tuple[int, str]] = {
    "allreduce": (kinds.ALL_REDUCE, "first"), "allreduce_coalesced": (kinds.ALL_REDUCE, "first"),
    "broadcast": (kinds.BROADCAST, "rooted"), "reduce": (kinds.REDUCE, "rooted"),
    "allgather": (kinds.ALL_GATHER, "second"), "_allgather_base": (kinds.ALL_GATHER, "second"), "all_gather_single": (kinds.ALL_GATHER, "second"),
    "allgather_coalesced": (kinds.ALL_GATHER, "second"), "allgather_into_tensor_coalesced": (kinds.ALL_GATHER, "second"),
    "all_gather_single_coalesced": (kinds.ALL_GATHER, "second"),
    "gather": (kinds.GATHER, "gathered"), "scatter": (kinds.SCATTER, "rooted"),
    "reduce_scatter": (kinds.REDUCE_SCATTER, "first"), "_reduce_scatter_base": (kinds.REDUCE_SCATTER, "first"),
    "reduce_scatter_single": (kinds.REDUCE_SCATTER, "first"), "reduce_scatter_tensor_coalesced": (kinds.REDUCE_SCATTER, "first"),
    "reduce_scatter_single_coalesced": (kinds.REDUCE_SCATTER, "first"),
    "alltoall": (kinds.ALL_TO_ALL, "uneven"), "alltoall_base": (kinds.ALL_TO_ALL, "uneven"), "all_to_all_single": (kinds.ALL_TO_ALL, "uneven"),
    "barrier": (kinds.BARRIER, "nothing"), "monitored_barrier": (kinds.BARRIER, "nothing"),
    "send": (kinds.SEND, "peer"), "recv": (kinds.RECEIVE, "peer"), "recv_anysource": (kinds.RECEIVE, "uneven"),
}  # fmt: skip
# Functional collectives: the kind, and the place of the argument that names the group.
_FUNCTIONS: dict[str, tuple[int, int]] = {
    "all_reduce": (kinds.ALL_REDUCE, 2), "all_reduce_coalesced": (kinds.ALL_REDUCE, 2), "broadcast": (kinds.BROADCAST, 2),
    "all_gather_tensor": (kinds.ALL_GATHER, 2), "all_gather_single": (kinds.ALL_GATHER, 2), "all_gather_tensor_autograd": (kinds.ALL_GATHER, 2),
    "all_gather_single_autograd": (kinds.ALL_GATHER, 2),
    "all_gather_into_tensor_coalesced": (kinds.ALL_GATHER, 1), "all_gather_single_coalesced": (kinds.ALL_GATHER, 1),
    "reduce_scatter_tensor": (kinds.REDUCE_SCATTER, 3), "reduce_scatter_single": (kinds.REDUCE_SCATTER, 3),
    "reduce_scatter_tensor_autograd": (kinds.REDUCE_SCATTER, 3), "reduce_scatter_single_autograd": (kinds.REDUCE_SCATTER, 3),
    "reduce_scatter_tensor_coalesced": (kinds.REDUCE_SCATTER, 3), "reduce_scatter_single_coalesced": (kinds.REDUCE_SCATTER, 3),
    "all_to_all_single": (kinds.ALL_TO_ALL, 3), "all_to_all_single_autograd": (kinds.ALL_TO_ALL, 3),
}  # fmt: skip
_FUNCTIONAL_MOST = 256  # results that nobody waits for are forgotten


class Calls:
    def __init__(self, dist: Any, marks: Marks, groups: Groups, works: Works, folder: Path) -> None:
        self._dist, self._marks, self._groups, self._works, self._folder = dist, marks, groups, works, folder
        import torch  # the program's, which has been imported

        self._torch = torch
        names = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128", "bool")
        self._types = {getattr(torch, name): number for number, name in enumerate(names)} | {torch.bfloat16: 15}
        self._told: set[str] = set()
        self._inside = threading.local()  # of a functional collective: whether it waited, too
        self._results: dict[int, tuple[int, int]] = {}  # by the address of what a functional collective gives: its group and ticket

    def open(self, group: Any) -> None:
        self._groups.open(group)

    def look(self) -> None:
        dist, torch = self._dist, self._torch
        group = torch._C._distributed_c10d.ProcessGroup
        for name, (kind, asks) in _METHODS.items():
            if hasattr(group, name):
                self._watch_method(group, name, kind, getattr(self, f"_{asks}"))
        self._works.watch_waits(torch._C._distributed_c10d.Work)
        for name, kind in (("_broadcast_coalesced", kinds.BROADCAST), ("_verify_params_across_processes", kinds.OTHER)):
            if hasattr(dist, name):
                self._watch_whole(dist, name, kind)
        if hasattr(dist, "Reducer"):
            self._watch_reducers(group)
        self._watch_backward()

    # ---- what all members must say alike ---------------------------------------------------------------------------------

    def _of(self, tensors: Any, root: int = -1) -> Asks | None:
        """None: on a device, whose collectives are not seen."""
        many = [tensors] if isinstance(tensors, self._torch.Tensor) else tensors
        first = many[0]
        if not first.is_cpu:
            self._tell_device(first.device.type)
            return None
        size = first.numel() if len(many) == 1 else sum(tensor.numel() for tensor in many)
        return self._types.get(first.dtype, -1), root, size, len(many)

    def _first(self, given: tuple[Any, ...]) -> Asks | None:
        return self._of(given[0])

    def _second(self, given: tuple[Any, ...]) -> Asks | None:
        return self._of(given[1])

    def _rooted(self, given: tuple[Any, ...]) -> Asks | None:
        return self._of(given[0], getattr(given[-1], "rootRank", -1))

    def _gathered(self, given: tuple[Any, ...]) -> Asks | None:
        return self._of(given[1], getattr(given[-1], "rootRank", -1))

    def _uneven(self, given: tuple[Any, ...]) -> Asks | None:
        """Members may differ in how much they give."""
        asked = self._of(given[0])
        return asked and (asked[0], -1, 0, 0)

    def _peer(self, given: tuple[Any, ...]) -> Asks | None:
        return self._of(given[0], int(given[1]))

    def _nothing(self, given: tuple[Any, ...]) -> Asks | None:
        return _NOTHING

    def _tell_device(self, device: str) -> None:
        if device not in self._told:
            self._told.add(device)
            (self._folder / f"unseen-{device}").touch()

    # ---- on their way ----------------------------------------------------------------------------------------------------

    def _watch_method(self, owner: Any, name: str, kind: int, asks: Callable[[tuple[Any, ...]], Asks | None]) -> None:
        original, enter, leave, of, works = getattr(owner, name), self._marks.enter, self._marks.leave, self._groups.of, self._works
        keep = works.message if kind in (kinds.SEND, kinds.RECEIVE) else works.begun
        on_hosts = self._groups.on_hosts if kind == kinds.BARRIER else None

        def call(self: Any, *given: Any, **named: Any) -> Any:
            group = of(self)
            if group == UNSEEN or (on_hosts and not on_hosts(self)):
                return original(self, *given, **named)
            works.settle()
            try:
                asked = asks(given)
            except (IndexError, TypeError, AttributeError):
                asked = _NOTHING  # called otherwise than torch's functions do; the original says what is wrong with it
            if asked is None:
                return original(self, *given, **named)
            ticket = enter(group, kind, *asked)
            try:
                work = original(self, *given, **named)
            except BaseException:
                leave(group, ticket, 1)
                raise
            if work is None:
                leave(group, ticket, 0)
            else:
                keep(work, group, ticket)
            return work

        # By this name torch knows that a class in Python which overrides nothing is called from within itself.
        call.__code__ = call.__code__.replace(co_name=name)
        call.__name__, call.__doc__ = name, original.__doc__
        setattr(owner, name, call)

    def _watch_whole(self, owner: Any, name: str, kind: int) -> None:
        """A function in C++ that returns when it is over: (group, tensors, ...)."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def call(process_group: Any, tensors: Any, *more: Any, **named: Any) -> Any:
            group = self._groups.of(process_group)
            asked = None
            if group != UNSEEN and len(tensors) > 0:
                root = more[1] if kind == kinds.BROADCAST and len(more) > 1 else -1
                asked = self._of(tensors, root)
            if asked is None:
                return original(process_group, tensors, *more, **named)
            ticket = self._marks.enter(group, kind, *asked)
            failed = 1
            try:
                result = original(process_group, tensors, *more, **named)
                failed = 0
                return result
            finally:
                self._marks.leave(group, ticket, failed)

        setattr(owner, name, call)

    def _watch_reducers(self, kind: Any) -> None:
        """DDP's reducer, whose collectives are called from C++, gets a group in Python that hands them on to its own: these are seen then."""
        dist, original, kept = self._dist, self._dist.Reducer, {}
        backends, cpu = kind.BackendType, self._torch.device("cpu")

        class HandsOn(kind):  # type: ignore[misc]
            def __init__(self, group: Any) -> None:
                super().__init__(group.rank(), group.size())
                self.group = group
                own = group._get_backend(cpu)
                backend = getattr(backends, type(own).__name__.replace("ProcessGroup", "").upper(), backends.CUSTOM)
                self._register_backend(cpu, backend, own)
                self._set_default_backend(backend)
                self._set_group_name(group.group_name)

            def allreduce(self, tensors: Any, options: Any) -> Any:
                return self.group.allreduce(tensors, options)

            def broadcast(self, tensors: Any, options: Any) -> Any:
                return self.group.broadcast(tensors, options)

            def getBackendName(self) -> Any:  # noqa: N802  as torch's C++ calls it
                return self.group.name()

        groups, tell = self._groups, self._tell_device

        @functools.wraps(original, updated=())
        def reducer(parameters: Any, buckets: Any, sizes: Any, process_group: Any, *more: Any, **named: Any) -> Any:
            if not all(parameter.is_cpu for parameter in parameters):
                tell(next(parameter.device.type for parameter in parameters if not parameter.is_cpu))
                return original(parameters, buckets, sizes, process_group, *more, **named)
            seen = HandsOn(process_group) if groups.of(process_group) != UNSEEN and groups.on_hosts(process_group) else process_group
            made = original(parameters, buckets, sizes, seen, *more, **named)
            kept[id(made)] = seen  # what C++ holds is not the part of it that is Python's
            weakref.finalize(made, kept.pop, id(made), None)
            return made

        dist.Reducer = reducer

    def _watch_backward(self) -> None:
        """All that DDP began is over behind it."""
        autograd: Any = self._torch.autograd
        original, settle = autograd.backward, self._works.settle

        @functools.wraps(original)
        def backward(*given: Any, **named: Any) -> Any:
            try:
                return original(*given, **named)
            finally:
                settle()

        autograd.backward = backward

    # ---- functional collectives ------------------------------------------------------------------------------------------

    def look_at_functional(self, functional: Any) -> None:
        for name, (kind, at) in _FUNCTIONS.items():
            if hasattr(functional, name):
                self._watch_function(functional, name, kind, at)
        wait, inside, results, leave = functional.wait_tensor, self._inside, self._results, self._marks.leave
        is_compiling = self._torch.compiler.is_compiling

        @functools.wraps(wait)
        def wait_tensor(tensor: Any) -> Any:
            result = wait(tensor)
            if not is_compiling():
                if getattr(inside, "ticket", None) is not None:
                    inside.waited = True
                if results and (found := results.pop(_address(tensor), None)):
                    leave(*found, 0)
            return result

        functional.wait_tensor = wait_tensor

    def _watch_function(self, functional: Any, name: str, kind: int, at: int) -> None:
        original, inside = getattr(functional, name), self._inside
        is_compiling = self._torch.compiler.is_compiling

        @functools.wraps(original)
        def call(*given: Any, **named: Any) -> Any:
            if is_compiling() or getattr(inside, "ticket", None) is not None:
                return original(*given, **named)
            group, asked = self._functional_asks(functional, kind, at, given, named)
            if asked is None:
                return original(*given, **named)
            inside.ticket, inside.waited = self._marks.enter(group, kind, *asked), False
            ticket, failed = inside.ticket, 1
            try:
                result = original(*given, **named)
                failed = 0
            finally:
                waited, inside.ticket = inside.waited, None
                if failed or waited:
                    self._marks.leave(group, ticket, failed)
            if not waited:
                self._await(result, group, ticket)
            return result

        setattr(functional, name, call)

    def _functional_asks(self, functional: Any, kind: int, at: int, given: Any, named: Any) -> tuple[int, Asks | None]:
        try:
            where = given[at] if len(given) > at else named["group"]
            resolved = self._torch._C._distributed_c10d._resolve_process_group(functional._resolve_group_name(where))
            group = self._groups.of(resolved)
            if group == UNSEEN:
                return UNSEEN, None
            tensors = given[0]
            if kind == kinds.ALL_TO_ALL:
                return group, self._uneven((tensors,))
            root = int(given[1]) if kind == kinds.BROADCAST else -1
            return group, self._of(tensors, root)
        except Exception:
            return UNSEEN, None  # such as a rank of several meshes: not seen

    def _await(self, result: Any, group: int, ticket: int) -> None:
        last = result[-1] if isinstance(result, (list, tuple)) else result
        if len(self._results) > _FUNCTIONAL_MOST:
            self._marks.leave(*self._results.pop(next(iter(self._results))), 0)
        try:
            address = _address(last)
        except Exception:
            self._marks.leave(group, ticket, 0)  # not to be followed: it counts as over
            return
        if before := self._results.pop(address, None):
            self._marks.leave(*before, 0)
        self._results[address] = (group, ticket)


def _address(tensor: Any) -> int:
    return int(getattr(tensor, "elem", tensor).untyped_storage().data_ptr())
