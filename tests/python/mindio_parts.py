"""What the client holds of its optimizers' state: of each type a number, which follows from the steps and from which part of the state it is.

Type 0 has two parts of two holders each: ranks of the one group that are half of it apart, or the members of each half. Type 1, where the
client has one, is that of experts: its groups are the pairs of ranks that are half the world apart, and their members hold the same.
"""
import json

PRIME = (1 << 61) - 1
_NAMES = ("shard", "expert")


class Part:
    """One rank's of one type. `number`: which part it is, of all types."""

    def __init__(self, kind, group, place, number):
        self.kind, self.group, self.number = kind, group, number
        self.file = f"{_NAMES[kind]}{place}"
        self.weight = 1 + number

    def update(self, grads):
        self.weight = (self.weight * 31 + grads * (self.number + 1)) % PRIME

    @property
    def replica_info(self):
        return {"rank_list": self.group, "replica_cnt": 2, "replica_shift": 0}


def parts_of(rank, world, halves, types):
    half = world // 2
    group, place = (list(range(rank // half * half, (rank // half + 1) * half)), rank // half) if halves else (list(range(world)), rank % half)
    parts = [Part(0, group, place, place)]
    if types > 1:
        parts.append(Part(1, [rank % half, rank % half + half], rank % half, half + rank % half))
    return parts


def saved_weight(number, step):
    """Of a part, from the first step on."""
    weight = 1 + number
    for k in range(1, step + 1):
        weight = (weight * 31 + 10 * k * (number + 1)) % PRIME
    return weight


def write(path, step, weight):
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"step": step, "weight": weight}, file)
