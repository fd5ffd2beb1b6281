"""What the torch door does on a device by itself: states with tensors there, a generator that draws there, Python's lock. Needs no run, and the fakes of
device_test.py."""
import pickle
import sys
import threading
import time
import types
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import fake_device  # noqa: E402

from kintsugi.pickled import Pickling  # noqa: E402
from kintsugi.torch import _build, devices, dry_step, pickled_tensors  # noqa: E402
from kintsugi.torch.randomness import Randomness  # noqa: E402

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
    drawing, module = torch.Generator(), torch.get_device_module(DEVICE)
    module.get_rng_state = lambda device: drawing.get_state()
    module.set_rng_state = lambda state, device: drawing.set_state(state)
    randomness = Randomness(devices.Device(None, EXTENSION))
    before = randomness.state_dict()
    drawn = torch.rand(4, generator=drawing)
    randomness.load_state_dict(before)
    assert torch.equal(torch.rand(4, generator=drawing), drawn)

    class Noisy(torch.optim.SGD):
        def step(self, closure=None):
            for parameter in self.param_groups[0]["params"]:
                parameter.grad += torch.rand(parameter.shape, generator=drawing).to(DEVICE)
            super().step(closure)

    state = drawing.get_state()
    dry_step.learn(Noisy([torch.nn.Parameter(torch.zeros(4, device=DEVICE))], lr=0.1), EXTENSION.calls)
    assert torch.equal(drawing.get_state(), state)
    del module.get_rng_state, module.set_rng_state


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


pickled()
generator()
lock()
print("ok")
