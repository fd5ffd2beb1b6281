"""What the torch door does on a device by itself: states with tensors there, a generator that draws there, Python's lock, what it refuses. Needs no run, and the
fakes of device_test.py."""
import os
import pickle
import sys
import threading
import time
import types
from pathlib import Path

import torch
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import fake_device  # noqa: E402

from torch.distributed import _symmetric_memory  # noqa: E402

import kintsugi  # noqa: E402
from kintsugi.pickled import Pickling  # noqa: E402
from kintsugi.reshard import Shard, Staged  # noqa: E402
from kintsugi.torch import _build, devices, dry_step, pickled_tensors, refused, shards  # noqa: E402
from kintsugi.torch.drafts import Drafts  # noqa: E402
from kintsugi.torch.loaders import Batches  # noqa: E402
from kintsugi.torch.optimizers import Record  # noqa: E402
from kintsugi.torch.randomness import Randomness  # noqa: E402
from kintsugi.torch.state import LargeBuffer  # noqa: E402

devices.SERVED.add("fake")
EXTENSION = _build.load()
DEVICE = torch.device("fake", 0)


def bytes_of(state):
    return Pickling(pickled_tensors.REDUCERS).bytes_of("held", types.SimpleNamespace(state_dict=lambda: state))


def pickled():
    """The same bytes wherever it lies; made on the device of the process that reads it."""
    state = {"t": torch.arange(6.0).reshape(2, 3).t(), "half": torch.ones(3, dtype=torch.bfloat16), "none": torch.zeros(0), "scalar": torch.tensor(True)}
    first, second = ({name: tensor.to(DEVICE) for name, tensor in state.items()} for _ in range(2))
    assert bytes_of(first) == bytes_of(second)
    for name, tensor in pickle.loads(bytes_of(first)).items():
        assert tensor.device == DEVICE and tensor.dtype == state[name].dtype and torch.equal(tensor.cpu(), state[name]), name
    assert pickle.loads(bytes_of(state))["t"].device.type == "cpu"


def generator():
    """Of a device that holds no state; and an optimizer that draws there."""
    module = torch.get_device_module(DEVICE)
    randomness = Randomness(devices.Device(None, EXTENSION))
    before = randomness.state_dict()
    drawn = torch.rand(4, device=DEVICE)
    randomness.load_state_dict(before)
    assert torch.equal(torch.rand(4, device=DEVICE), drawn)

    class Noisy(torch.optim.SGD):
        def step(self, closure=None):
            for parameter in self.param_groups[0]["params"]:
                parameter.grad += torch.rand_like(parameter)
            super().step(closure)

    state = module.get_rng_state()
    dry_step.learn(Noisy([torch.nn.Parameter(torch.zeros(4, device=DEVICE))], lr=0.1), EXTENSION.calls)
    assert torch.equal(module.get_rng_state(), state)


def drawn_batches():
    """A batch that was drawn on the device, and is given once more, leaves its generator as it did the first time."""
    def collate(samples):
        return torch.stack(samples) + torch.rand(1, device=DEVICE)

    batches = Batches(DataLoader([torch.zeros(1, device=DEVICE)] * 4, collate_fn=collate), device=devices.Device(None, EXTENSION))
    batches.begin(None)
    before = torch.get_device_module(DEVICE).get_rng_state()
    batch, behind = batches.next(), torch.rand(1, device=DEVICE)
    torch.get_device_module(DEVICE).set_rng_state(before)
    batches.seek(0)
    assert torch.equal(batches.next(), batch) and torch.equal(torch.rand(1, device=DEVICE), behind)


def default_device():
    """What torch.set_default_device says is nothing to memory of the host's that is ours."""
    torch.set_default_device(DEVICE)
    record = Record(64)
    record.write((1, "two"))
    assert record.read() == (1, "two")
    torch.set_default_device(None)


def large_buffer():
    """One that stays what it is is not packed again, and one that is written past torch's counter is."""
    model = torch.nn.Module()
    model.register_buffer("mask", torch.ones(1 << 20, device=DEVICE))
    encoder = LargeBuffer(model, EXTENSION, "mask")
    first = encoder.encode()
    assert all(encoder.encode() is first for _ in range(12))
    model.mask.data[5] = 2
    assert encoder.missed() and encoder.encode() is not first
    again = encoder.encode()
    model.mask[7] = 3
    assert encoder.encode() is not again
    model.mask.fill_(0)
    encoder.load_state_dict(pickle.loads(first))
    assert float(model.mask.sum()) == 1 << 20


def lock():
    """Whoever waits for the device lets other threads run."""
    buffer, ran = torch.ones(3, device=DEVICE), []
    for wait in (lambda: EXTENSION.pack([buffer]), lambda: EXTENSION.unpack([buffer], buffer.cpu().numpy().tobytes())):
        fake_device.synchronize()
        other = threading.Thread(target=lambda: (time.sleep(0.05), ran.append(time.monotonic())))
        other.start()
        fake_device.busy(400_000)
        wait()
        fake_device.synchronize()
        done = time.monotonic()
        other.join()
        assert done - ran.pop() > 0.1


def refusals():
    """By name."""
    def is_refused(words, function, *arguments):
        try:
            function(*arguments)
        except kintsugi.Error as error:
            assert words in str(error), error
            return
        raise AssertionError(f"not refused: {words}")

    tensor = torch.zeros(3, device=DEVICE)
    for name, value, words, function in (
        ("CUDA_MPS_PIPE_DIRECTORY", "/tmp", "CUDA_MPS_PIPE_DIRECTORY is set: under MPS an error of one process ends all", lambda: devices.Device(None, EXTENSION).open("w", tensor)),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "TORCH_DISTRIBUTED_DEBUG=DETAIL: torch puts a group of its own around each", refused.refuse_environment),
    ):
        os.environ[name] = value
        is_refused(words, function)
        del os.environ[name]
    elsewhere = devices.Device(None, EXTENSION)
    elsewhere.place = torch.device("fake", 1)
    is_refused("'w' is on fake:0, other state on fake:1: a rank's state lies on one device", elsewhere.hold, "w", tensor)
    assert refused.is_ours("cpu:kintsugi,fake:kintsugi") and not refused.is_ours("cpu:kintsugi,cuda:nccl")
    place, drafts = devices.Device(None, EXTENSION), Drafts(EXTENSION)
    torch.cuda.CUDAGraph.capture_begin = torch.cuda.CUDAGraph.capture_end = lambda *_: None  # without CUDA it cannot be made
    refused.watch(lambda: False, EXTENSION, place, lambda: drafts.in_use)
    arena = devices.DeviceArena(place, EXTENSION)
    drafted = torch.zeros(3, device=DEVICE)
    drafts.before_step([drafted])
    is_refused("captured in a step in which parameters work in drafts", torch.cuda.CUDAGraph.capture_begin)
    drafts = Drafts(EXTENSION)
    torch.cuda.CUDAGraph.capture_begin()
    torch.cuda.CUDAGraph.capture_end()
    is_refused("captured before run.register, which moves what is registered", arena.take, [tensor])
    is_refused("rendezvous: a kernel that waits for memory of a rank that is gone", _symmetric_memory.rendezvous, tensor)
    for is_target in (False, True):
        is_refused("'w' is on fake:0: pass what lies contiguous on the host, or offload=True", shards.described_tensor, "w", Shard(tensor, (3,)), is_target, Staged(False))
    staged = Staged(True)
    shards.described_tensor("w", Shard(tensor, (3,)), True, staged)
    staged._copies[0].fill_(7)
    staged.deliver()
    assert tensor.cpu().tolist() == [7, 7, 7]


pickled()
refusals()
generator()
drawn_batches()
default_device()
large_buffer()
lock()
print("ok")
