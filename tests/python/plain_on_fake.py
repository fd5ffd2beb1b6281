"""Plain torch on the fake device, for a reference: a process group that copies what lies there to the host, and gathers over Gloo. Nothing of it is Kintsugi's.

`take_place()`: whatever backend a script asks init_process_group for, it gets this one.
"""
import functools
import os

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

_FOLDS = {dist.ReduceOp.SUM: torch.add, dist.ReduceOp.AVG: torch.add, dist.ReduceOp.PRODUCT: torch.mul, dist.ReduceOp.MAX: torch.maximum, dist.ReduceOp.MIN: torch.minimum}


def _done(result):
    future = Future()
    future.set_result(result)
    return _create_work_from_future(future)


class HostGroup(dist.ProcessGroup):
    """All is gathered, and what a rank needs of it is made there, in the order of the ranks."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._rank, self._size = rank, size

    @property
    def group_name(self):
        return dist.distributed_c10d._world.pg_names[self]

    def getBackendName(self):
        return "host"

    def _gather(self, tensor):
        own = tensor.detach().cpu().contiguous()
        told = [torch.empty_like(own.reshape(-1).view(torch.uint8)) for _ in range(self._size)]
        if own.numel():
            self._gloo.allgather([told], [own.reshape(-1).view(torch.uint8)]).wait()
        return [one.view(own.dtype).reshape(own.shape) for one in told]

    def _fold(self, tensor, options):
        kind = next(kind for kind in _FOLDS if options.reduceOp == kind)
        total = functools.reduce(_FOLDS[kind], self._gather(tensor))
        return total / self._size if kind == dist.ReduceOp.AVG else total

    @torch.no_grad()
    def allreduce(self, tensors, options):
        for tensor in tensors:
            tensor.copy_(self._fold(tensor, options))
        return _done(tensors)

    def allreduce_coalesced(self, tensors, options):
        return self.allreduce(tensors, options)

    @torch.no_grad()
    def broadcast(self, tensors, options):
        for tensor in tensors:
            tensor.copy_(self._gather(tensor)[options.rootRank])
        return _done(tensors)

    @torch.no_grad()
    def reduce(self, tensors, options):
        for tensor in tensors:
            total = self._fold(tensor, options)
            if self._rank == options.rootRank:
                tensor.copy_(total)
        return _done(tensors)

    @torch.no_grad()
    def allgather(self, outputs, inputs, options=None):
        for to, tensor in zip(outputs, inputs):
            for one, told in zip(to, self._gather(tensor)):
                one.copy_(told)
        return _done(outputs)

    @torch.no_grad()
    def _allgather_base(self, output, tensor, options=None):
        output.copy_(torch.cat([one.reshape(-1) for one in self._gather(tensor)]).reshape(output.shape))
        return _done(output)

    all_gather_single = _allgather_base  # as newer releases call it

    def allgather_into_tensor_coalesced(self, outputs, inputs, options=None):
        for output, tensor in zip(outputs, inputs):
            self._allgather_base(output, tensor)
        return _done(outputs)

    @torch.no_grad()
    def _reduce_scatter_base(self, output, tensor, options):
        output.copy_(self._fold(tensor, options).reshape(-1).chunk(self._size)[self._rank].reshape(output.shape))
        return _done(output)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, options):
        for output, tensor in zip(outputs, inputs):
            self._reduce_scatter_base(output, tensor, options)
        return _done(outputs)

    @torch.no_grad()
    def gather(self, outputs, inputs, options):
        told = self._gather(inputs[0])
        if self._rank == options.rootRank:
            for one, value in zip(outputs[0], told):
                one.copy_(value)
        return _done(outputs)

    @torch.no_grad()
    def scatter(self, outputs, inputs, options):
        root = options.rootRank
        for rank in range(self._size):
            told = self._gather(inputs[0][rank] if self._rank == root else outputs[0])[root]
            if rank == self._rank:
                outputs[0].copy_(told)
        return _done(outputs)

    def barrier(self, opts=None):
        self._gather(torch.zeros(1))
        return _done(None)


def take_place():
    dist.Backend.register_backend("host", HostGroup, devices=["cpu", "fake"])
    plain = dist.init_process_group

    @functools.wraps(plain)
    def begin(backend=None, *args, device_id=None, **kwargs):
        plain("host", *args, **kwargs)

    dist.init_process_group = begin
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
