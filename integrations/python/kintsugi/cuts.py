"""Where the elements of a plain array lie in larger tensors, told by a rule: what a rank has of a tensor that its program cut by itself,
and what is stored as several tensors though it is one array (Megatron's ShardedTensorFactory).

A rule knows shapes only. So one serves a parameter and each state of its optimizer, which has the parameter's shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ._errors import Error
from .abi import Code
from .terms import Piece


@dataclass(frozen=True)
class Part:
    """What lies in an array from element `first` on (row-major): a piece of the tensor `key`, which begins with the array's own key.
    `piece.box` is its shape; with `piece.flat` a range of it."""

    key: str
    first: int
    piece: Piece

    def elements(self) -> int:
        if self.piece.flat != (0, 0):
            return self.piece.flat[1] - self.piece.flat[0]
        return math.prod(self.piece.box or ())


# From an array's key and shape its parts, which are the array: each element in one of them.
Cut = Callable[[str, tuple[int, ...]], Iterable[Part]]


def cut(axis: int, groups: Sequence[Sequence[int]], rank: int, names: Sequence[str] = ("",)) -> Cut:
    """The rule for arrays that are equal cuts of a tensor along `axis`, over the ranks of one of `groups` in their order; ranks at one
    place of their groups hold the same. `cut(0, [[0, 1], [2, 3]], run.rank)` is what a column-parallel weight of torch's layout is under
    tensor parallelism of two.

    `names`: the array is so many tensors behind one another along axis 0, each cut that way and called KEY.NAME: ("gate", "up")."""
    group = next((one for one in groups if rank in one), None)
    sizes = {len(one) for one in groups}
    if group is None or len(sizes) != 1 or len({r for one in groups for r in one}) != sizes.pop() * len(groups):
        raise Error(f"cut over {[list(one) for one in groups]}: groups of one size, each rank in one of them, rank {rank} too", Code.INVALID_ARGUMENT)
    if not names or len(set(names)) != len(names) or (len(names) > 1 and "" in names):
        raise Error(f"cut into {list(names)}: each part needs a name of its own", Code.INVALID_ARGUMENT)
    place, size = list(group).index(rank), len(group)
    holders = tuple(sorted(one[place] for one in groups))

    def rule(key: str, shape: tuple[int, ...]) -> list[Part]:
        if not 0 <= axis < len(shape):
            raise Error(f"'{key}' of shape {list(shape)} has no axis {axis} along which it could be cut", Code.INVALID_ARGUMENT)
        if shape[0] % len(names):
            raise Error(f"'{key}' has {shape[0]} rows, which are not {len(names)} tensors ({', '.join(names)}) of one size", Code.INVALID_ARGUMENT)
        box = (shape[0] // len(names), *shape[1:])
        whole = tuple(length * size if at == axis else length for at, length in enumerate(box))
        offset = tuple(length * place if at == axis else 0 for at, length in enumerate(box))
        each = math.prod(box)
        return [Part(f"{key}.{name}" if name else key, number * each, Piece(whole, offset, holders, box)) for number, name in enumerate(names)]

    return rule


def parts_of(key: str, shape: Iterable[int], rule: Cut) -> list[Part]:
    """What the rule says of an array, in the order in which it lies there."""
    shape = tuple(int(length) for length in shape)
    parts = list(rule(key, shape))
    for part in parts:
        box = part.piece.box
        if not part.key.startswith(key):
            raise Error(f"'{key}' is cut into '{part.key}', whose name does not begin with it", Code.INVALID_ARGUMENT)
        if box is None or not len(box) == len(part.piece.global_shape) == len(part.piece.offset):
            raise Error(f"'{part.key}' has a box {box} at {part.piece.offset} of {part.piece.global_shape}: say three of one length", Code.INVALID_ARGUMENT)
        if any(low < 0 or low + length > whole for low, length, whole in zip(part.piece.offset, box, part.piece.global_shape)):
            raise Error(f"'{part.key}': {list(box)} at {list(part.piece.offset)} reaches out of {list(part.piece.global_shape)}", Code.INVALID_ARGUMENT)
    parts.sort(key=lambda part: (part.first, part.elements()))
    if len({part.key for part in parts}) != len(parts):
        raise Error(f"'{key}' is cut into two parts of one name: {sorted(part.key for part in parts)}", Code.INVALID_ARGUMENT)
    ends = [0, *(part.first + part.elements() for part in parts)]
    for part, end in zip(parts, ends):
        if part.first != end:
            raise Error(f"'{part.key}' begins at element {part.first} of '{key}', where element {end} must be next", Code.INVALID_ARGUMENT)
    if ends[-1] != math.prod(shape):
        raise Error(f"'{key}' of shape {list(shape)} has {math.prod(shape)} elements, its parts have {ends[-1]}", Code.INVALID_ARGUMENT)
    return parts
