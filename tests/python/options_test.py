"""Options of FSDP2, styles of tensor parallelism and options of DistributedDataParallel under Kintsugi leave what they leave under plain torch.

  options_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--fakes FOLDER] [--only WORD]...

--soak: each kind of fault in each phase. --fakes: DDP's with all that its script makes on the fake device, from this folder with libkintsugi_fake_*.so.
"""
import sys

from compared import Compared
from door import main, opened

PHASES = ("forward", "backward", "gradient-sync", "gate", "update", "param-sync", "between")

if __name__ == "__main__":
    door, options = opened()
    copied, cut = (Compared(door, "torch_shard_options.py", *more, nproc=4) for more in ((), ("--flat",)))
    pair = Compared(door, "torch_shard_options.py", "--flat")
    wrapped = Compared(door, "torch_ddp_options.py")
    # Who has no second copy goes back to a snapshot.
    trainers = (("two copies of two parts", copied, ()), ("parts over all ranks", cut, ("--snapshot-every", "1")), ("DDP", wrapped, ()))

    of_ddp = ("DDP: killed in the first step and in an update, exceptions in a backward pass and in an update",
              wrapped.same("kill:1@1:backward", "throw:0@3:backward", "kill:0@5:update", "throw:1@7:update",
                           paths=[("adopt", "retry", "respawn", "rebuild"), ("adopt", "retry", "adopt", "rebuild")]))

    # torch_test.py has the options that matter most for DDP in every run; these take one launch more.
    def matrix():
        yield of_ddp
        for name, trainer, how in trainers:
            yield f"{name}: undisturbed, and gone on with from the middle", trainer.resumed(4)
            for phase in PHASES:
                yield f"{name}: killed and an exception in phase {phase}", trainer.same(f"kill:1@2:{phase}", f"throw:0@4:{phase}", f"kill:0@6:{phase}",
                                                                                          options=how, paths=None)
            yield f"{name}: hangs in a backward pass and in an update", trainer.same("freeze:1@3:backward", "freeze:0@6:update",
                                                                                     options=("--silence", "4", *how), paths=None)

    short = [
        ("options of FSDP2 and styles of tensor parallelism: an exception in a backward pass, killed in an update",
         pair.same("throw:0@2:backward", "kill:1@4:update", options=("--snapshot-every", "1"), paths=[("retry", "reload")])),
    ]
    if door.fakes:  # FSDP2's options are in bfloat16, of which the host's kernels, borrowed there, have no layer norm
        short = [of_ddp]
    sys.exit(main(list(matrix()) if options.soak else short, door.bin, options.only))
