"""A trainer in torchtitan's shape survives: same bits, losses and samples as the undisturbed run.

  titan_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--fakes FOLDER] [--soak] [--only WORD]...
      --soak: each way to be parallel, struck in each phase; --fakes: on the fake device
"""
import re
import sys

from compared import Compared
from door import ROOT, Failure, main, opened

TRAIN = str(ROOT / "integrations/examples/torch_titan/train.py")


def as_by_itself(door, program):
    """The trainer's own train() over Gloo, under plain torch, says the same of its steps."""
    def test(_):
        plain = door.plain([*program, "--without-run"], 4, PLAIN="1")
        _, log = door.run((), program)
        expected, found = (re.findall(r"step \d+ loss \S+ norm \S+ tokens \S+", text) for text in (plain, log))
        if len(expected) != 2 or found != expected:
            raise Failure(f"{found}, by itself {expected}")
    return test


if __name__ == "__main__":
    door, options = opened()
    trainer = door.script(TRAIN, "--steps", "12", "--accumulate", "2")

    def struck(name, *faults, paths, how="hsdp", arguments=(), words=()):
        arguments = [*arguments, *(word for fault in faults for word in ("--inject", fault))]
        return name, door.same([*trainer, "--parallel", how], arguments, paths=paths, words=words)

    def matrix():
        yield "undisturbed it trains as it does by itself", as_by_itself(door, trainer)
        for how in ("ddp", "fsdp", "hsdp"):
            rest = ("--snapshot-every", "2") if how == "fsdp" else ()  # nobody has a second copy
            for phase in ("forward", "backward", "gradient-sync", "gate", "update", "param-sync", "between"):
                yield struck(f"{how}, killed and struck by an exception in phase {phase}", f"kill:1@3:{phase}", f"throw:2@6:{phase}",
                             f"kill:0@9:{phase}", how=how, paths=None, arguments=rest)

    def left_out(name, *words, faults=(), veto=("--veto", "nan"), paths=None, options=()):
        return name, Compared(door, "titan_refused.py", *words, nproc=4).same(*faults, options=(*veto, *options), paths=paths)

    def every_left_out():
        yield left_out("ddp, the very first step is left out, and the last", "--parallel", "ddp", "--bad", "1:2", "--bad", "12:0", paths=(("retry",) * 4,))
        yield left_out("fsdp, a rank is killed in the step that is left out", "--parallel", "fsdp", "--bad", "7:1", faults=("kill:2@7:backward",),
                       options=("--snapshot-every", "2"))
        yield left_out("found by the trainer, in the middle of a step", "--bad", "5:3", "--call", veto=(), paths=(("retry",) * 2,))

    # The last of a step's collectives before its gate is the clipping's; tokens that were counted twice would be more.
    short = [
        struck("exceptions in forward, at the clipping's collective, in the update and behind it, killed in an update and in forward",
               "throw:1@2:forward", "throw:3@4,collective=24", "kill:2@6:update", "throw:0@8:update", "throw:0@9:between", "kill:1@11:forward",
               paths=[["retry", "retry", "respawn", "rebuild", "retry", "adopt"]], words=("in clip_gradients", "tokens 1,280 a rank")),
        left_out("two steps are left out, one after the other, and a rank is killed in the second", "--bad", "5:1", "--bad", "6:0", faults=("kill:3@6:forward",)),
        ("what is not protected is refused by name", door.alone("titan_mistakes.py")),
        ("types of the trainer are as they say", door.typed(TRAIN)),
    ]
    sys.exit(main([*matrix(), *every_left_out()] if options.soak else short, door.bin, options.only))
