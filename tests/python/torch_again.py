"""Models and optimizers registered once more, made anew: in the memory and under the names of those before. Needs no run."""
import ctypes

import torch

import kintsugi
from kintsugi.objects import Objects
from kintsugi.pickled import Pickling
from kintsugi.torch import _build, devices, registry

extension = _build.load()
kept = []


class Memory:
    """Of this process alone."""

    def __init__(self, size):
        self.bytes = ctypes.create_string_buffer(size)
        self.address = ctypes.addressof(self.bytes)
        kept.append(self.bytes)

    def fill(self, offset, source, size):
        assert offset + size <= len(self.bytes)
        ctypes.memmove(self.address + offset, source, size)

    def finish(self):
        pass


class Stub:
    """A run that keeps what it is told."""

    rank, world_size = 0, 2

    def __init__(self):
        self.agent, self.memory = self, {}
        self._objects = Objects(None, None, Pickling({}), print)

    def state_memory(self, size):
        return Memory(size)

    def usual_holders(self):
        return (0, 1)

    def register_memory(self, key, memory, *_):
        self.memory[key] = memory[0]

    def register_alias(self, *_):
        pass

    def register_object(self, key, thing, _):
        self._objects.add(key, thing)

    exchange_object = kintsugi.run.Run.exchange_object

    @property
    def objects(self):
        return self._objects._things


def pair(width=3, tied=True, transposed=False, momentum=0.5):
    net = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Linear(width, width))
    if tied:
        net[1].weight = net[0].weight
    if transposed:
        net[1].bias = torch.nn.Parameter(torch.zeros(2 * width)[::2])
    return {"model": net, "optimizer": torch.optim.SGD(net.parameters(), lr=0.1, momentum=momentum)}


stub = Stub()
books = registry.Registry(stub, extension, devices.Device(None, extension), registry.Hooks(lambda *_: None, lambda *_: None, lambda *_: None), lambda: 0)
first = pair()
books.add(first, {}, {})
for parameter in first["model"].parameters():
    parameter.grad = torch.ones_like(parameter)
first["optimizer"].step()
for held in first["optimizer"].state.values():
    held["momentum_buffer"].fill_(7)
second = pair()
books.begin_again(second)
assert not torch.equal(second["model"][0].bias, first["model"][0].bias), "in its place before all that was made is known"
books.end_again()
assert books.models == [second["model"]] and stub.objects["optimizer.settings"].optimizer is second["optimizer"]
for (name, old), new in zip(first["model"].named_parameters(), second["model"].parameters()):
    assert torch.equal(old, new) and new.data_ptr() == old.data_ptr() == stub.memory[f"model/{name}"], name
    assert new not in second["optimizer"].state, "what a trial step left is no state"
settings = stub.objects["optimizer.settings"]
settings.load_state_dict(settings.state_dict())
for name, new in second["model"].named_parameters():
    assert torch.all(second["optimizer"].state[new]["momentum_buffer"] == 7), name
assert second["model"][1].weight is second["model"][0].weight and books.places.first_moved() == ""
for words, other in (("made 'model/0.weight' as float32 [4, 4] of ranks [0, 1], before it was float32 [3, 3]", pair(width=4)),
                     ("made 'model/1.weight' as float32 [3, 3] of ranks [0, 1], before it was nothing of that name", pair(tied=False)),
                     ("made 'optimizer/0.bias.momentum_buffer' before, and does not now", pair(momentum=0.0))):  # fmt: skip
    books.begin_again(other)
    try:
        books.end_again()
    except kintsugi.Error as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"not refused: {words}")
try:
    books.begin_again({**pair(), "late": torch.amp.GradScaler("cpu")})
except kintsugi.Error as error:
    assert "object 'late' was not registered" in str(error), error
else:
    raise AssertionError("an object came from nowhere")
print("ok")
