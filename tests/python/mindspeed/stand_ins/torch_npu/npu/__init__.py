"""Stands for torch.npu: one device to a process, whose memory is the host's. Streams and events have nothing to order."""
import contextlib
import time

import torch

from .. import hccl

_DEVICES = 8
_FACTORY_NUMBERS = {"memory_allocated": 0, "max_memory_allocated": 0, "memory_reserved": 0, "max_memory_reserved": 0}
uce_level = 0  # what the device answers when it is asked for damaged memory: 2 nothing lost, 3 lost
default_generators = (torch.default_generator,) * _DEVICES


def is_available():
    return True


def is_initialized():
    return True


def device_count():
    return _DEVICES


def current_device():
    return 0


def set_device(_device):
    pass


def empty_cache():
    pass


def synchronize(device=None):
    if hccl.STATE.stopped:
        raise RuntimeError("FORCE STOP: the device is stopped")


def stop_device(_device):
    hccl.stop()
    return 0


def restart_device(_device):
    hccl.restart()


def check_uce_in_memory(_device):
    return uce_level


class Event:
    def __init__(self, enable_timing=False):
        self._time = 0

    def record(self, _stream=None):
        self._time = time.time_ns() // 1000

    def synchronize(self):
        pass

    def recorded_time(self):
        return self._time


class Stream:
    def __init__(self, *_, **__):
        pass

    def wait_stream(self, _other):
        pass

    def synchronize(self):
        synchronize()


def current_stream(device=None):
    return Stream()


default_stream = current_stream


def set_stream(_stream):
    pass


def stream(_stream):
    return contextlib.nullcontext()


SyncLaunchStream = Stream


def memory_stats(device=None):
    return {}


def manual_seed(seed):
    torch.default_generator.manual_seed(seed)


manual_seed_all = manual_seed


def get_rng_state(device=None):
    return torch.get_rng_state()


def set_rng_state(state, device=None):
    torch.set_rng_state(state)


def _number(value):
    return lambda device=None: value


for _name, _value in _FACTORY_NUMBERS.items():
    globals()[_name] = _number(_value)
