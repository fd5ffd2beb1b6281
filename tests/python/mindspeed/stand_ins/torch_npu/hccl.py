"""Stands for HCCL, the collectives between Ascend devices: Gloo below Kintsugi's own swappable group, as backend "hccl".

What the client asks of HCCL: a device that is stopped fails every collective at once; reinit_process_group makes groups usable again on
all ranks of an incident, the same objects as before; a process that takes a lost one's place can make its groups long before the others
re-make theirs. The number in the rendezvous, which HCCL has in its own network, is that of mindio_ttp's attempt.
"""
import datetime
import json
import threading

import torch.distributed as dist
from kintsugi.torch import _build
from kintsugi.torch.groups import _Wire
from torch._C._distributed_c10d import PrefixStore, Store

_WAIT_MS = 60_000
_DRAIN_MS = 1_000


class _Breakable(Store):
    """A store whose waits end when the device is stopped, later than the group began to connect: links are resumed before the restart."""

    def __init__(self, store):
        super().__init__()
        self._store, self._stops = store, STATE.stops

    def _await(self, keys, seconds=_WAIT_MS / 1000):
        for _ in range(int(seconds * 50)):
            if STATE.stops != self._stops:
                raise RuntimeError("FORCE STOP: the device was stopped while a group was connected")
            if self._store.check(keys):
                return
            STATE.pause.wait(0.02)
        raise RuntimeError(f"hccl: {keys} did not come within {seconds:g} s")

    def get(self, key):
        self._await([key])
        return self._store.get(key)

    def set(self, key, value):
        self._store.set(key, value)

    def wait(self, keys, timeout=None):
        self._await(list(keys), timeout.total_seconds() if timeout else _WAIT_MS / 1000)

    def check(self, keys):
        return self._store.check(keys)

    def add(self, key, amount):
        return self._store.add(key, amount)

    def delete_key(self, key):
        return self._store.delete_key(key)

    deleteKey = delete_key

    def clone(self):
        return self

    def has_extended_api(self):
        return False


class _State:
    """This process's."""

    def __init__(self):
        self.groups = []
        self.stopped, self.stops = False, 0
        self.pause = threading.Event()  # never set: a wait that lets go of Python's lock
        self.remade = False
        self.lock = threading.Lock()


STATE = _State()


def _attempt():
    from mindio_ttp._kintsugi.session import SESSION

    return SESSION.processor.rank.group_names.repair if SESSION.processor is not None else 0


def _joins():
    """Whether this process takes a lost one's place: its groups answer alone until they are re-made."""
    from mindio_ttp.framework_ttp import tft_is_reboot_node

    return not STATE.remade and tft_is_reboot_node()


class _Group:
    """`store`: torch's, with the group's name in its prefix. Members find each other there, so all of them must call the group alike."""

    def __init__(self, outer, store, rank, size):
        self.outer, self.store, self.rank, self.size = outer, store, rank, size
        self.keep = []

    def connect(self):
        base = _Breakable(self.store)
        prefix = f"hccl/{_attempt()}"
        wire = _Wire(_extension(), 1)
        base.set(f"{prefix}/listening/{self.rank}", json.dumps(sorted(wire.ports)))
        wire.meet(port for other in range(self.size) if other != self.rank for port in json.loads(base.get(f"{prefix}/listening/{other}")))
        inner = wire.constructor(self.rank, self.size, datetime.timedelta(milliseconds=_WAIT_MS))(PrefixStore(prefix, base))
        self.keep = [base]
        connections = [(socket.descriptor, socket.inode) for socket in (*wire.initiated(), *wire.accepted)]
        self.outer.connect(inner, connections, _attempt())


def _create(options, _pg_options=None):
    extension = _extension()
    rank, size = int(options.group_rank), int(options.group_size)
    outer = extension.OuterGroup(rank=rank, size=size, name=str(options.group_id), timeout_ms=_WAIT_MS)
    group = _Group(outer, options.store, rank, size)
    with STATE.lock:
        STATE.groups.append(group)
    if not _joins():
        group.connect()
    return outer


def reinit_process_group(group=None, rebuild_link=True):
    """group None: every group where links stay, the default group where they are re-made."""
    if group is not None or rebuild_link:
        group = group if group is not None else dist.group.WORLD
        chosen = [g for g in STATE.groups if g.outer is group._get_backend(_DEVICE)]
    else:
        chosen = list(STATE.groups)
    STATE.remade = True
    for one in chosen:
        one.outer.drain(_DRAIN_MS)
        one.connect()
    return group


def stop():
    STATE.stopped = True
    STATE.stops += 1
    for group in list(STATE.groups):
        group.outer.close("the device was stopped")


def restart():
    STATE.stopped = False


def _extension():
    if not hasattr(_extension, "module"):
        _extension.module = _build.load()
    return _extension.module


def register():
    import torch

    global _DEVICE
    _DEVICE = torch.device("cpu")
    dist.Backend.register_backend("hccl", _create, extended_api=True, devices=["cpu"])
