"""Torch on a device survives: same bits, losses and samples as the undisturbed run on that device.

  device_test.py BIN_DIR PACKAGE_FOLDER PYTHON FAKES_FOLDER [--of ways|kinds] [--soak] [--only WORD]...
  device_test.py BIN_DIR PACKAGE_FOLDER PYTHON --device cuda [--only WORD]...

FAKES_FOLDER: with libkintsugi_fake_*.so: the fake device (tests/support/fake_device) over the fake NCCL, which show the host's side alone. --device cuda: the first one
here, shared by all ranks. --of: only the ways to be parallel, or the kinds of what a rank has there. --soak: each way to be parallel, each kind of fault, each phase.
"""
import argparse
import sys

from compared import Compared
from door import HERE, ROOT, Door, beside, main, skip_without_torch
from megatron_test import GPT as MEGATRON
from megatron_test import WAYS as MEGATRON_WAYS

GPT = str(ROOT / "integrations/examples/torch_gpt/train.py")
TRAIN = str(HERE / "device_train.py")
WAYS = ("ddp", "fsdp", "hsdp", "tp", "zero")
EACH = [(f"{kind}:1@4:{phase}",) for kind in ("throw", "kill") for phase in ("forward", "backward", "gradient-sync", "gate", "update", "param-sync")]


class OnDevice(Door):
    def __init__(self, arguments, device, fakes, inner="nccl"):
        super().__init__(arguments, "kintsugi.torch", fakes)
        self.device, self.inner = device, inner

    def environment(self):
        return {**super().environment(), "GLOO_SOCKET_IFNAME": "lo", "KINTSUGI_INNER": self.inner}

    def over_torchs(self):
        """Collectives on the device by what torch makes for it. Of two ranks a sum is the same whoever adds it up: so are the references."""
        other = OnDevice((self.bin, self.package, self.tools), self.device, self.fakes, "torch")
        other.references = self.references
        return other

    def program(self, script, *words):
        return ["-W", "ignore", str(HERE / "on_device.py"), script, "--device", self.device, *words]


def struck(door, name, program, faults, options=(), nproc=2):
    return f"{name}, {' and '.join(faults)}", door.same(program, (*options, *(word for fault in faults for word in ("--inject", fault))), nproc=nproc)


# DTensor and Megatron draw by means that the fake device has not: no dropout there.
def ways(door, soak):
    plain = ("--dropout", "0") if door.fakes else ()
    for how in WAYS if soak else ("ddp", "fsdp", "tp"):
        nproc = 4 if how in ("hsdp", "tp") else 2
        # Steps are short: the snapshot of the second one is in both memories once the third is over.
        kept = ("--snapshot-every", "2", "--inject", "slow:0@3:forward,ms=300") if how == "fsdp" else ()
        program = door.program(GPT, "--steps", "8", "--parallel", how, *plain)
        for faults in EACH if soak else [("throw:1@4:backward", "kill:1@6:update")]:
            # What is left of shards without a second copy in an update is that of the snapshot before.
            yield struck(door, how, program, faults, kept, nproc)
    for how in MEGATRON_WAYS if soak else ["DP 4, DistributedOptimizer, bf16, overlapped"]:
        # The fake device borrows the host's kernels: a layer norm's backward has no bfloat16 there.
        options = [word for word in MEGATRON_WAYS[how] if word != "--bf16" or not door.fakes]
        single = "--distributed" in options and "--instances" not in options
        program = door.names_cuda(*MEGATRON, *options, *plain)
        for faults in EACH if soak else [("throw:1@4:backward",)]:
            yield struck(door, f"Megatron, {how}", program, faults, ("--snapshot-every", "2") if single else (), 4 if soak else 2)


def kinds(door, soak):
    dropout = ("--dropout", "0.1")
    for kind in ("plain", "scaled", "two", "held", "batched", "at-once"):
        program = door.program(TRAIN, "--kind", kind, *dropout)
        for faults in EACH if soak else [("throw:0@5:forward", "kill:1@7:backward")]:
            yield struck(door, kind, program, faults)
    if door.fakes:
        yield "parts", door.alone("device_parts.py")
        # Beside plain torch, whose process group goes by way of the host (plain_on_fake.py).
        loop = Compared(door, door.names_cuda(str(HERE / "cuda_loop.py")), plain=("KINTSUGI", "0"))
        yield "a loop that leaves its data to the device, killed and thrown in its steps", loop.same(
            "kill:1@2:backward", "throw:0@4:forward", "kill:0@6:update", "throw:1@7:update", "kill:1@9:param-sync", "throw:1@11:gate", paths=None)
        streams, together = (Compared(door, door.names_cuda(str(HERE / "cuda_streams.py")), *more, plain=("KINTSUGI", "0")) for more in ((), ("--together",)))
        yield "state that changes on two streams and behind the update, undisturbed, and gone on with from what was saved", streams.resumed(7)
        yield "... killed behind an update, in a forward pass and in an update, an exception", streams.same(
            "kill:1@2:param-sync", "throw:0@4:forward", "kill:0@6:forward", "kill:1@8:update", paths=None)
        yield "two streams in one update, gone on with from what was saved behind it", together.resumed(7)
        for words in ((), ("--buffers",)):
            program = door.program(str(HERE / "device_waits.py"), *words)
            yield f"an undisturbed step waits for the device {'twice, with buffers' if words else 'nowhere'}", lambda _, program=program: door.run((), program, 2)
        yield "128 groups that are connected anew, thrice: nothing of those before is left", door.same(
            door.program(str(HERE / "device_groups.py")), ("--inject", "throw:0@2:backward", "--inject", "throw:1@4:forward", "--inject", "kill:1@6:backward"), nproc=2)
        yield "a trainer in torchtitan's shape, killed and thrown in its steps, beside its own loop", Compared(door, "titan_refused.py", "--parallel", "ddp").same(
            "kill:1@3:backward", "throw:0@6:forward", "kill:0@9:update", paths=None)
        yield "kernels of a broken update, which the device has not come to", door.same(
            door.program(TRAIN, "--kind", "host-sums"), more=("--leave", "1@5"), nproc=2, paths=[["rebuild"]])
    plain = door.program(TRAIN, *dropout)
    by_kind = door.program(TRAIN, "--kind", "plain", *dropout)
    yield "over what torch makes for the device, killed and thrown", door.over_torchs().same(
        by_kind, ("--inject", "throw:0@3:backward", "--inject", "kill:1@5:backward", "--inject", "kill:0@7:update"), nproc=2)
    among = ("--among", "1@3", "--among", "0@5", "--among", "1@5")
    together = door.program(TRAIN, "--kind", "at-once", *dropout)
    # Of two ranks that throw at the same place one may be stopped before it comes there, and throws when the step is made again.
    for name, inner in (("", door), (" over what torch makes for the device", door.over_torchs())):
        yield f"an exception among calls that are to be done at once{name}: on one rank, on all", inner.same(together, more=among, nproc=2, paths=[["retry"] * 2, ["retry"] * 3])
        yield f"an exception among such calls{name}, which the script catches: the step is made again", inner.same(
            together, more=[*among[:2], "--caught"], nproc=2, paths=[["retry"]], words=["a block of calls that are to be done at once"])
    yield "a hang in a step", beside(door.same(plain, ("--inject", "hang:1@5:backward", "--silence", "6", "--hang-least", "8", "--step-timeout", "8"), nproc=2))
    yield "a spare takes the place of a killed rank", door.same(plain, ("--inject", "kill:1@5:forward", "--spares", "1"), nproc=2)
    yield "the device's memory fails: nothing of it is believed", door.same(plain, ("--inject", "device:1@5:backward,xid=94"), nproc=2, paths=[["respawn"]])
    if not door.fakes:
        yield "an error of a kernel, which ends its context", door.same(plain, more=("--lose", "1@5"), nproc=2, words=("is lost: ", "a new process takes over"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs=3)
    parser.add_argument("fakes", nargs="?", default="")
    parser.add_argument("--device", default="fake")
    parser.add_argument("--of", choices=("ways", "kinds"))
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    door = OnDevice(options.places, options.device, options.fakes)
    skip_without_torch(door)
    tests = [test for of in (ways, kinds) if options.of in (None, of.__name__) for test in of(door, options.soak)]
    sys.exit(main(tests, door.bin, options.only))
