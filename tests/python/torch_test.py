"""A plain torch script over Gloo survives: same bits, losses and samples as the undisturbed run.

  torch_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--fakes FOLDER] [--only WORD]...

--soak: each way to be parallel, each kind of fault, each phase. --fakes: with all that the scripts make on the fake device, from this folder with
libkintsugi_fake_*.so.
"""
import sys

from door import HERE, ROOT, beside, main, opened

GPT = [str(ROOT / "integrations/examples/torch_gpt/train.py"), "--steps", "12"]
SHARDS = [str(HERE / "torch_shards.py")]  # HSDP, tensor parallel and ReplicaOptimizer in one program
BUILT = [str(HERE / "torch_built.py")]
MIXED = [str(HERE / "torch_mixed.py")]  # a scaled loss, activations computed again, several batches a step, workers that load


if __name__ == "__main__":
    door, options = opened()
    calm = ["--dropout", "0"] if door.fakes else []  # DTensor draws by means that the fake device has not

    # A run takes some 17 s of CPU, most of it for importing torch: faults share runs.
    def struck(name, *faults, paths, options=(), how="ddp", nproc=4, program=None):
        arguments = [*options, *(word for fault in faults for word in ("--inject", fault))]
        return name, door.same(door.script(*(program or [*GPT, "--parallel", how, *calm])), arguments, nproc=nproc, paths=paths)

    def anew(faults, path):
        return door.same(door.script(*BUILT), [word for fault in faults for word in ("--inject", fault)], paths=[path],
                         reasons=["after step 2 the models were made anew: what Overlapped keeps of the broken step is not known, as its 'group'"])

    compiled = struck("a compiled forward pass and all that trainers use beside it", "kill:1@2:backward", "throw:0@5:forward",
                      "throw:0@7:update", "throw:1@9:backward", program=[*MIXED, "--compile"], nproc=2, paths=None)
    fused = struck("a scaled loss and a fused optimizer", "kill:1@2:backward", "throw:0@7:update", "throw:1@9:backward", program=[*MIXED, "--fused"],
                   nproc=2, paths=None)

    # Where nobody has a second copy the loss of a process goes back to a snapshot; damage to one that is older than the damage.
    def matrix():
        for how in ("ddp", "fsdp", "hsdp", "tp", "zero"):
            alone = how == "fsdp"
            options = ("--silence", "4", *(("--snapshot-every", "1") if alone else ()))
            for phase in ("forward", "backward", "gradient-sync", "gate", "update", "param-sync", "between"):
                yield struck(f"{how}, struck by everything in phase {phase}", f"kill:1@2:{phase}", f"throw:2@4:{phase}",
                             f"exit:3@6:{phase}", f"freeze:0@8:{phase}", *(() if alone else (f"uce:2@10:{phase},tensors=model/*",)),
                             paths=None, options=options, how=how)
            yield struck(f"{how}, damaged tensors", "uce:3@9:backward,tensors=model/*", "uce:1@11:forward,tensors=optimizer/*",
                         paths=None, options=("--snapshot-every", "5") if alone else (), how=how)

        yield compiled
        yield fused
        yield ("what cannot be reset is made anew, in each phase",
               anew([f"throw:{i % 4}@{3 + 2 * i}:{phase}" for i, phase in enumerate(("forward", "backward", "gradient-sync", "gate"))]
                    + ["kill:0@11:update", "kill:1@13:backward"], ["retry"] * 4 + ["respawn", "adopt"]))

    short = [
        struck("DDP: killed in the first step, in an update and in its forward pass, silent in its backward pass, exceptions outside of an update and inside",
               "kill:1@1:backward", "throw:3@3,collective=2", "freeze:2@5:backward", "kill:2@7:update", "throw:1@9:update", "kill:0@11:forward",
               options=("--silence", "4"), paths=[["adopt", "retry", silent, "respawn", "rebuild", "adopt"] for silent in ("adopt", "respawn")]),
        struck("HSDP, tensor parallel and ReplicaOptimizer: exceptions outside of an update, inside and after it, damaged parameters, "
               "killed in an update", "throw:1@3:backward", "kill:2@5:update", "uce:3@7:backward,tensors=c*", "throw:0@9:update",
               "throw:1@11:param-sync", program=SHARDS, paths=[["retry", "respawn", "patch", "rebuild", "retry"]]),
        ("what cannot be reset is made anew, after exceptions outside of an update and inside, and by a newcomer",
         anew(["throw:1@3,collective=4", "kill:2@6:backward", "throw:0@9:update"], ["retry", "adopt", "rebuild"])),
        struck("tensors made of others, as quantized ones are of data and scale", "kill:1@3:update", "throw:0@5:backward", nproc=2,
               program=[str(HERE / "torch_quantized.py")], paths=[["respawn", "retry"]]),
        struck("a scaled loss that overflows, activations computed again, several batches a step, worker processes that load",
               "kill:1@2:backward", "throw:0@5:forward", "throw:0@7:update", "kill:1@9:gradient-sync", program=MIXED, nproc=2,
               paths=[["adopt", "retry", "rebuild", "adopt"]]),
        ("many groups connected anew have each their own connections, one is closed alone, and what torch had collected of a step is forgotten",
         door.same([str(HERE / "torch_swapped.py")], ("--inject", "throw:1@3:backward", "--inject", "kill:2@5:forward"), more=["--coalesced"],
                   paths=[["retry", "adopt", "retry", "retry"]])),
        ("a receive waits for a rank that is late as long as the group says, before and after a repair",
         beside(door.same([str(HERE / "torch_patience.py")], ("--inject", "throw:1@2:backward", "--silence", "8", "--hang-least", "20", "--step-timeout", "8"),
                          nproc=2, paths=[["retry"]]))),
        # Slow steps, so that the spare has imported torch by then; on a machine that is busier still it has not.
        struck("DDP, killed, and a spare takes the place", "slow:0@2:forward,ms=1000", "kill:1@6:backward", nproc=2,
               options=("--no-adopt", "--spares", "1"), program=[*GPT[:1], "--steps", "7", "--parallel", "ddp"], paths=[["spare"], ["respawn"]]),
        struck("FSDP2 without a second copy, an exception, killed in an update with snapshots", "throw:1@3:backward",
               "kill:0@7:update", how="fsdp", nproc=2, options=("--snapshot-every", "2"), paths=[["retry", "reload"]]),
    ]
    # Quantized data that lies on the host; a group's connections that are closed alone, where those of a device end together.
    of_host = ("tensors made of others", "many groups")
    if door.fakes:
        short = [*(test for test in short if not test[0].startswith(of_host)), fused, compiled]
    sys.exit(main(list(matrix()) if options.soak else short, door.bin, options.only))
