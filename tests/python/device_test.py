"""Torch on a device survives: same bits, losses and samples as the undisturbed run on that device.

  device_test.py BIN_DIR PACKAGE_FOLDER PYTHON FAKES_FOLDER [--soak] [--only WORD]...
  device_test.py BIN_DIR PACKAGE_FOLDER PYTHON --device cuda [--only WORD]...

FAKES_FOLDER: with libkintsugi_fake_*.so: the fake device (tests/support/fake_device) over the fake NCCL, which show the host's side alone. --device cuda: the first one
here, shared by all ranks. --soak: each way to be parallel, each kind of fault, each phase.
"""
import argparse
import sys

from door import HERE, ROOT, Door, main, skip_without_torch
from megatron_test import GPT as MEGATRON
from megatron_test import WAYS as MEGATRON_WAYS

GPT = str(ROOT / "integrations/examples/torch_gpt/train.py")
TRAIN = str(HERE / "device_train.py")
WAYS = ("ddp", "fsdp", "hsdp", "tp", "zero")
FAULTS = [f"{kind}:1@4:{phase}" for kind in ("throw", "kill") for phase in ("forward", "backward", "gradient-sync", "gate", "update", "param-sync")]


class OnDevice(Door):
    def __init__(self, arguments, device, fakes):
        super().__init__(arguments, "kintsugi.torch", fakes)
        self.device = device

    def environment(self):
        return {**super().environment(), "GLOO_SOCKET_IFNAME": "lo"}

    def program(self, script, *words):
        return ["-W", "ignore", str(HERE / "on_device.py"), script, "--device", self.device, *words]


def tests(door, soak):
    # The fake device draws from the host's generator, when it comes to it: no dropout there.
    dropout = () if door.fakes else ("--dropout", "0.1")
    plain = ("--dropout", "0") if door.fakes else ()
    for how in WAYS:
        nproc = 4 if how in ("hsdp", "tp") else 2
        # Steps are short: the snapshot of the second one is in both memories once the third is over.
        kept = ("--snapshot-every", "2", "--inject", "slow:0@3:forward,ms=300") if how == "fsdp" else ()
        program = door.program(GPT, "--steps", "8", "--parallel", how, *plain)
        for fault in FAULTS if soak else ["throw:1@4:backward", "kill:1@4:update"]:
            # What is left of shards without a second copy in an update is that of the snapshot before.
            yield f"{how}, {fault}", door.same(program, (*kept, "--inject", fault), nproc=nproc)
    for kind in ("plain", "scaled", "two", "held", "batched"):
        program = door.program(TRAIN, "--kind", kind, *dropout)
        for fault in FAULTS if soak else ["throw:0@5:forward", "kill:1@5:backward"]:
            yield f"{kind}, {fault}", door.same(program, ("--inject", fault), nproc=2)
    for how in MEGATRON_WAYS if soak else ["TP 2 x DP 2, bf16, overlapped", "DP 4, DistributedOptimizer, bf16, overlapped"]:
        # The fake device borrows the host's kernels: a layer norm's backward has no bfloat16 there.
        options = [word for word in MEGATRON_WAYS[how] if word != "--bf16" or not door.fakes]
        single = "--distributed" in options and "--instances" not in options
        program = door.names_cuda(*MEGATRON, *options, *plain)
        for fault in FAULTS if soak else [f"{'throw' if single else 'kill'}:1@4:backward"]:
            yield f"Megatron, {how}, {fault}", door.same(program, (*(("--snapshot-every", "2") if single else ()), "--inject", fault), nproc=4 if soak else 2)
    if door.fakes:
        yield "parts", door.alone("device_parts.py")
        yield "kernels of a broken update, which the device has not come to", door.same(
            door.program(TRAIN, "--kind", "host-sums"), more=("--leave", "1@5"), nproc=2, paths=[["rebuild"]])
    yield "a hang in a step", door.same(door.program(TRAIN, *dropout), ("--inject", "hang:1@5:backward"), nproc=2)
    yield "a spare takes the place of a killed rank", door.same(door.program(TRAIN, *dropout), ("--inject", "kill:1@5:forward", "--spares", "1"), nproc=2)
    yield "the device's memory fails: nothing of it is believed", door.same(
        door.program(TRAIN, *dropout), ("--inject", "device:1@5:backward,xid=94"), nproc=2, paths=[["respawn"]])
    if not door.fakes:
        yield "an error of a kernel, which ends its context", door.same(
            door.program(TRAIN, *dropout), more=("--lose", "1@5"), nproc=2, words=("is lost: ", "a new process takes over"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs=3)
    parser.add_argument("fakes", nargs="?", default="")
    parser.add_argument("--device", default="fake")
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    door = OnDevice(options.places, options.device, options.fakes)
    skip_without_torch(door)
    sys.exit(main(list(tests(door, options.soak)), door.bin, options.only))
