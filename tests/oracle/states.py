"""Random state dictionaries for the tests of checkpoint formats, and their comparison bit by bit."""

import math

FLOATS = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
OTHERS = ["int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "uint16", "uint32", "uint64", "float8_e4m3fnuz",
          "float8_e5m2fnuz", "float8_e8m0fnu"]
ODD = ["complex128", "complex32"]  # safetensors has none of these


def bits(torch, tensor):
    """The tensor's elements as bytes, whatever its type."""
    if tensor.numel() == 0:
        return b""
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() < 4096 else \
        tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def random_tensor(torch, rng, dtype, shape):
    kind = getattr(torch, dtype)
    count = math.prod(shape)
    raw = torch.tensor(list(rng.randbytes(count * kind.itemsize)), dtype=torch.uint8)
    if dtype == "bool":
        return (raw % 2).to(torch.bool).reshape(shape)
    return raw.view(kind).reshape(shape)


def flat_state(torch, rng, tensors, dtypes):
    """Names to tensors: every type, scalars, empty ones, odd names."""
    state = {}
    for number in range(tensors):
        shape = [rng.randrange(1, 9) for _ in range(rng.randrange(0, 5))]
        if rng.random() < 0.1 and shape:
            shape[rng.randrange(len(shape))] = 0
        name = rng.choice(["layer.%d.weight", "gewicht.%d.größe", "层.%d", "a b.%d", "x/%d"]) % number
        state[name] = random_tensor(torch, rng, rng.choice(dtypes), shape)
    return state


def nested_state(torch, rng, kinds=tuple(OTHERS)):
    """A state dictionary as trainers have it: nested, views, shared storages, parameters, small values."""
    weight = random_tensor(torch, rng, "float32", [6, 10])
    table = random_tensor(torch, rng, "bfloat16", [50, 4])
    return {
        "model": {"w": weight, "w.t": weight.t(), "part": weight[1:5, 2:8], "tied": weight, "rows": table[3:7],
                  "parameter": torch.nn.Parameter(torch.ones(3)), "column": weight[:, 3], "empty": torch.zeros(0, 4),
                  "spread": torch.ones(1).expand(5), "scalar": torch.tensor(2.5, dtype=torch.float64)},
        "optimizer": {"state": {0: {"exp_avg": random_tensor(torch, rng, "float32", [6, 10]), "step": 7},
                                1: {"exp_avg": random_tensor(torch, rng, "float8_e5m2", [3])},
                                2: {kind: random_tensor(torch, rng, kind, [2, 3]) for kind in kinds}},
                      "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.95), "params": [0, 1]}]},
        "iteration": 12, "name": "großer lauf", "none": None, "flag": True, "big": 2 ** 80, "negative": -5,
        "bytes": b"\x00\xff\x80", "shape": torch.Size([2, 3]), "type": torch.bfloat16, "nothing": {}, "list": [],
        "large": 1 << 40, "set": {1, 2},
    }


def leaves(torch, value, path=()):
    """(path, leaf) in torch's own order of flattening."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(torch, inner, path + (str(key),))
    elif isinstance(value, (list, tuple)) and any(isinstance(v, (dict, torch.Tensor)) for v in value):
        for place, inner in enumerate(value):
            yield from leaves(torch, inner, path + (str(place),))
    else:
        yield ".".join(path), value


def assert_equal_tensors(torch, wanted, found, where):
    assert found.dtype == wanted.dtype, (where, found.dtype, wanted.dtype)
    assert tuple(found.shape) == tuple(wanted.shape), (where, found.shape, wanted.shape)
    assert bits(torch, found) == bits(torch, wanted), where


def assert_equal_states(torch, wanted, found, where):
    wanted, found = dict(leaves(torch, wanted)), dict(leaves(torch, found))
    assert set(wanted) == set(found), (where, sorted(set(wanted) ^ set(found))[:5])
    for key, value in wanted.items():
        if isinstance(value, torch.Tensor):
            assert_equal_tensors(torch, value, found[key], (where, key))
        else:
            assert found[key] == value and isinstance(found[key], type(value)), (where, key, value, found[key])
