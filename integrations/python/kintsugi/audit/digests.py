"""Digests of tensors, of trees of them, and of random numbers: equal where the bits are.

Threads: any. Errors: none; what has no bytes to read (a meta tensor, a sparse layout) is told by its type and shape.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys
from typing import Any, Iterator

_CHUNK = 1 << 22  # elements that a device multiplies at a time: 32 MiB beside the tensor


def _hash(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def text(value: object) -> str:
    """Of a value by what `repr` says of it."""
    return _hash(repr(value).encode())


def _on_device(torch: Any, flat: Any) -> str:
    """Two sums of products with numbers that depend on the place, modulo 2**64: the order of adding does not matter, and nothing but
    sixteen bytes comes to the host."""
    rest = flat.numel() % 4
    words = flat[: flat.numel() - rest].view(torch.int32)
    sums = [0, 0]
    for at in range(0, words.numel(), _CHUNK):
        part = words[at : at + _CHUNK].to(torch.int64)
        places = torch.arange(at + 1, at + 1 + part.numel(), device=part.device, dtype=torch.int64)
        for i, odd in enumerate((0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)):
            mixed = places * (odd - (1 << 64))
            mixed = (mixed ^ (mixed >> 29)) * 0x5851F42D4C957F2D | 1
            sums[i] += int((part * mixed).sum())
    tail = bytes(flat[flat.numel() - rest :].cpu().tolist())
    return _hash(repr([s % (1 << 64) for s in sums]).encode() + tail)


def tensor(torch: Any, value: Any) -> str:
    """Of a tensor's elements, type and shape; of this rank's part of a DTensor, of what a tensor is made of that has no bytes of its own."""
    if type(value).__name__ == "DTensor":
        value = value.to_local()
    kind = f"{value.dtype}{tuple(value.shape)}"
    if hasattr(value, "__tensor_flatten__"):
        return text([kind, *(tensor(torch, getattr(value, name)) for name in value.__tensor_flatten__()[0])])
    if not has_bytes(torch, value) or value.is_quantized:
        return f"{kind} {value.layout} {value.device.type}"
    with torch.no_grad():
        flat = value.detach()
        flat = flat.resolve_conj().resolve_neg().contiguous().view(-1)
        size = flat.numel() * flat.element_size()
        if size == 0:
            return _hash(kind.encode())
        if flat.device.type != "cpu":
            return _hash((kind + _on_device(torch, flat.view(torch.uint8))).encode())
        hasher = hashlib.blake2b(kind.encode(), digest_size=8)
        hasher.update((ctypes.c_char * size).from_address(flat.data_ptr()))
        return hasher.hexdigest()


def has_bytes(torch: Any, value: Any) -> bool:
    """False of what is only described, or put together from others."""
    described = type(value).__name__ in ("DTensor", "FakeTensor") or hasattr(value, "__tensor_flatten__")
    return not described and value.layout is torch.strided and value.device.type != "meta"


def fits_half(torch: Any, value: Any) -> str:
    """"bfloat16" or "float16" where every element of a wider tensor is a number of that type; else ""."""
    local = value.to_local() if type(value).__name__ == "DTensor" else value
    if not has_bytes(torch, local) or local.dtype not in (torch.float32, torch.float64) or local.numel() == 0:
        return ""
    with torch.no_grad():
        local = local.detach()
        if not bool(local.any()):
            return ""
        for half in (torch.bfloat16, torch.float16):
            if bool((local.to(half).to(local.dtype) == local).all()):
                return str(half).removeprefix("torch.")
    return ""


_DEEPEST = 8  # a batch is not nested deeper; an object that holds itself ends there


def leaves(torch: Any, tree: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """(where, what) of everything in lists, tuples, dictionaries and objects made of fields; modules and functions are left out."""
    if isinstance(tree, (torch.Tensor, str, bytes, int, float, bool, type(None))) or _is_array(tree):
        yield path, tree
    elif depth == _DEEPEST or callable(tree):
        return
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(torch, value, f"{path}/{key}", depth + 1)
    elif isinstance(tree, (list, tuple)):
        for i, value in enumerate(tree):
            yield from leaves(torch, value, f"{path}/{i}", depth + 1)
    elif hasattr(tree, "__dict__"):
        for key, value in vars(tree).items():
            yield from leaves(torch, value, f"{path}.{key}", depth + 1)


def _is_array(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def tree(torch: Any, value: object) -> str:
    """Of everything in a batch or in a module's arguments."""
    found = []
    for path, leaf in leaves(torch, value):
        if isinstance(leaf, torch.Tensor):
            found.append((path, tensor(torch, leaf)))
        elif _is_array(leaf):
            found.append((path, f"{leaf.dtype}{leaf.shape}{_hash(leaf.tobytes()) if not leaf.dtype.hasobject else ''}"))
        else:
            found.append((path, repr(leaf)))
    return text(found)


def random_states(torch: Any, generators: dict[str, Any]) -> dict[str, str]:
    """A digest of each source of random numbers that the process has: Python's, numpy's, torch's, each device's, and those given."""
    states = {"python": text(random.getstate()), "torch": tensor(torch, torch.get_rng_state())}
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        name, keys, *rest = numpy.random.get_state()
        states["numpy"] = _hash(keys.tobytes() + repr((name, rest)).encode())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for i in range(torch.cuda.device_count()):
            states[f"cuda:{i}"] = tensor(torch, torch.cuda.get_rng_state(i))
    for name, generator in generators.items():
        states[name] = tensor(torch, generator.get_state())
    return states
