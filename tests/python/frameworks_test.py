"""Training loops that others wrote survive through their own hooks: same bits and losses as the undisturbed run.

  frameworks_test.py BIN_DIR PACKAGE_FOLDER PYTHON ORACLES FAKES [--only WORD]...
      ORACLES: the folder with the frameworks (./tools/setup --oracles); FAKES: with libkintsugi_fake_*.so
"""
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from compared import Compared
from door import HERE, ROOT, Failure, FrameworkDoor, Skip, main, skip_without_torch

EXAMPLES = ROOT / "integrations/examples"


class Nodes(FrameworkDoor):
    def two_nodes(self, folder, *words):
        """A launcher of torchrun's for each of two nodes; their exit codes, (rank, began, steps, parameters) of each rank, what was said."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = "--silence 8 --hang-least 20 --save-dir saves --resume auto"
        launchers = [
            subprocess.Popen([self.python, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "1",
                              "--master-addr", "127.0.0.1", "--master-port", str(port), str(HERE / "lightning_stopped.py"), *words],
                             cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**self.environment(), "PATH": f"{self.bin}:{os.environ['PATH']}", "KINTSUGI_CONTROLLER_OPTIONS": options})
            for node in range(2)
        ]
        output = "".join(launcher.communicate(timeout=600)[0] for launcher in launchers)
        began = dict(re.findall(r"rank (\d) began (\d+)", output))
        said = [(rank, began[rank], *ended) for rank, *ended in re.findall(r"rank (\d) steps (\d+) parameters ([0-9a-f]{16})", output)]
        return [launcher.returncode for launcher in launchers], sorted(said), output

    def stopped_on_two_nodes(self, _):
        """torchrun is told to end, as by a scheduler: what is done is saved, and the next run ends as one that was never stopped."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            codes, undisturbed, output = self.two_nodes(folder)
        if codes != [0, 0] or len(undisturbed) != 2 or undisturbed[0][3] != undisturbed[1][3]:
            raise Failure(f"the undisturbed run: {codes} {undisturbed}\n{output[-6000:]}")
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            codes, said, output = self.two_nodes(folder, "5")
            if said or 0 in codes or not list(Path(folder, "saves").glob("step_*")):
                raise Failure(f"{codes} {said}: nothing was saved, or it did not end\n{output[-6000:]}")
            codes, said, output = self.two_nodes(folder, "5")
        if codes != [0, 0] or [rank[2:] for rank in said] != [rank[2:] for rank in undisturbed] or not all(4 <= int(rank[1]) <= 8 for rank in said):
            raise Failure(f"{codes} {said}, undisturbed {undisturbed}\n{output[-6000:]}")


if __name__ == "__main__":
    door = Nodes(sys.argv[1:])
    device = FrameworkDoor(sys.argv[1:], fakes=sys.argv[5])
    skip_without_torch(door)
    door.skip_without("transformers")
    trainer = [str(EXAMPLES / "torch_huggingface/train.py")]
    loop = [str(EXAMPLES / "torch_accelerate/train.py")]
    # Eight steps are an epoch: a step that is done again before, at and after its end, in old and in new processes.
    at_ends = ["throw:0@1:backward", "throw:1@8:between", "kill:0@16:gate", "kill:1@17:forward"]
    faults = ["throw:0@3:gate", "kill:1@5:backward", "throw:1@9:gate", "kill:0@11:update"]
    struck = [word for fault in faults for word in ("--inject", fault)]
    slow = ["--join-timeout", "400", "--silence", "8", "--hang-least", "20"]
    lightning = [str(EXAMPLES / "torch_lightning/train.py")]

    epochs, steps = Compared(door, "trainer_epochs.py"), Compared(door, "trainer_epochs.py", *"--accumulate 4 --strategy steps --draws --unseeded".split())
    prepared = Compared(door, "accelerate_loop.py")
    accumulated = Compared(door, "accelerate_loop.py", "--accumulate", "4", "--seedable", "--draws")
    validated = Compared(door, "lightning_epochs.py")

    def elsewhere(name, words, faults=(), expect=0):
        """State of the script's own that is not kept is told, or refused, by name."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                injected = [word for fault in faults for word in ("--inject", fault)]
                summary, log = door.run(injected, [str(HERE / "trainer_epochs.py"), folder, "--elsewhere", name], nproc=2, expect=expect)
            told = str(summary.get("inexact")) if expect == 0 else log
            if not all(word in told for word in words):
                raise Failure(f"{words}: {told[-3000:]}")
        return test

    def struck_at(*places):
        return [word for place in places for word in ("--strike", place)]

    def path(*rungs):
        """However a lost rank is replaced: its memory is adopted where it was not in its update."""
        return [rungs]

    def with_lightning(test):
        def run(arguments):
            if not door.has("lightning"):
                raise Skip(f"there is no lightning in {door.frameworks}; ./tools/setup --oracles installs it")
            test(arguments)
        return run

    sys.exit(main([
        ("Hugging Face's Trainer: exceptions at the gate, killed in its backward pass and in its update",
         door.same(trainer, [*slow, *struck], nproc=2, paths=[["retry", "adopt", "retry", "respawn"]])),
        ("Hugging Face's Trainer, accumulating gradients, an exception in the gradient sync",
         door.same([*trainer, "--accumulate", "2", "--steps", "6"], [*slow, "--inject", "throw:1@3:gradient-sync"], nproc=2,
                   paths=[["retry"]])),
        ("Trainer with an average in a callback, which is not registered",
         elsewhere("module", ["averaged' (AveragedModel) has changed by step 1 and is not registered"], expect=1)),
        ("Trainer whose loss counts in a global variable, an exception and a killed process",
         elsewhere("global", ["'COMPUTED' (trainer_epochs.py:", "of rank 1, neither registered nor kept (run.keep): changed in step 3, which is made again",
                              "of rank 0, neither registered nor kept (run.keep): changed in step 6, which is made again", "of rank 1, neither registered nor kept (run.keep): this process goes on from step 5"], ["throw:0@3:backward", "kill:1@6:backward"])),
        ("a loop with Accelerate, an exception after the update, killed in its backward pass",
         door.same(loop, [*slow, "--inject", "throw:0@3:param-sync", "--inject", "kill:1@6:backward"], nproc=2,
                   paths=[["retry", "adopt"]])),
        ("Trainer's epochs, evaluations, saves and best model: gone on with from the middle", epochs.resumed(8)),
        ("Trainer killed in an evaluation, in a save, at an epoch's end, in a forward pass and a tail, an exception as the best model is loaded",
         epochs.same("kill:1@3:forward", "throw:0@8:update", "kill:1@13:param-sync", paths=path("adopt", "adopt", "rebuild", "adopt", "adopt", "retry"),
                     more=struck_at("predict@6:1", "saving@12:0", "loaded-best@18:0:throw"))),
        ("Trainer, batches of a step and random data: exceptions in a tail and an evaluation, killed in a save, at an epoch's begin and its end",
         steps.same("kill:1@2:backward", paths=path("adopt", "retry", "retry", "adopt", "adopt", "adopt"),
                    more=struck_at("tail@2:0:throw", "predict@3:1:throw", "saving@3:1", "epoch-begin@4:0", "epoch-end@6:1"))),
        ("Trainer leaves steps out, one of them an epoch's last: killed behind each",
         Compared(door, "trainer_epochs.py", "--bad", "4:1", "--bad", "12:0").same(
             "kill:1@5:forward", "kill:0@13:forward", options=("--veto", "nan"), paths=path("retry", "retry", "adopt", "retry", "retry", "adopt"))),
        ("Accelerate's loaders: killed in each phase, at an epoch's end and in an evaluation, exceptions",
         prepared.same("kill:1@3:forward", "kill:0@7:update", "throw:1@9:backward", "kill:1@12:param-sync", "throw:0@13:forward",
                       paths=path("adopt", "adopt", "respawn", "retry", "adopt", "retry"), more=struck_at("evaluate.0.1:1"))),
        ("Accelerate's accumulate() and random data: killed and thrown within a step, at a pass's short last one, in a save and an evaluation",
         accumulated.same("kill:1@2:backward", "throw:0@3:gradient-sync", "kill:0@4:update", "kill:1@5:forward",
                          paths=path("adopt", "adopt", "retry", "respawn", "retry", "adopt", "adopt"),
                          more=struck_at("save.0:0", "evaluated.1:1:throw", "evaluate.2.0:0"))),
        ("Accelerate's accumulate(), gone on with from the middle", accumulated.resumed(3)),
        ("Accelerate's scaled loss, which overflows: killed and thrown in its steps",
         Compared(door, "accelerate_loop.py", "--accumulate", "2", "--scaled").same(
             "throw:0@2:backward", "kill:1@3:forward", "kill:0@5:update", "throw:1@7:update", "throw:0@8:gate", paths=None)),
        ("Trainer's scaled loss, which overflows: killed and thrown in its steps",
         Compared(door, "trainer_epochs.py", "--scaled").same(
             "throw:0@3:backward", "kill:1@5:forward", "kill:0@8:update", "throw:1@10:update", "throw:0@14:gate", paths=None)),
        ("what is not protected of Trainer and Accelerate is refused by name", door.alone("trainer_mistakes.py", door.environment()["PYTHONPATH"])),
        ("Lightning's Trainer killed in a validation and in a save, and an exception in another", with_lightning(
            validated.same("kill:1@3:forward", paths=path("adopt", "adopt", "adopt", "retry"),
                           more=struck_at("validate@6.1:1", "save@12:0", "validate@18.0:0:throw")))),
        ("Lightning's Trainer, an exception in an update and killed in another: nothing is told to be inexact", with_lightning(
            validated.same("throw:0@3:update", "kill:1@5:update", paths=None, is_exact=True))),
        ("Lightning's Trainer in 16-mixed, whose scaled loss overflows: killed and thrown in its steps", with_lightning(
            Compared(door, "lightning_epochs.py", "--half").same(
                "throw:0@3:backward", "kill:1@5:forward", "kill:0@8:update", "throw:1@10:update", "throw:0@14:gate", paths=None))),
        ("Lightning's Trainer leaves steps out, one of them an epoch's last: killed behind each", with_lightning(
            Compared(door, "lightning_epochs.py", "--bad", "4:1", "--bad", "12:0").same(
                "kill:1@5:forward", "kill:0@13:forward", options=("--veto", "nan"), paths=path("retry", "retry", "adopt", "retry", "retry", "adopt")))),
        ("Lightning's Trainer: exceptions at the gate, killed in its backward pass and in its update", with_lightning(
            door.same(lightning, [*slow, *struck], nproc=2, paths=[["retry", "adopt", "retry", "respawn"]]))),
        ("Lightning's Trainer, struck in forward, behind an epoch's last update and in its first step, killed at an epoch's end and start",
         with_lightning(door.same(lightning, [*slow, *(word for fault in at_ends for word in ("--inject", fault))], nproc=2,
                                  paths=[["retry", "retry", "adopt", "adopt"]]))),
        ("Lightning's Trainer, accumulating gradients, killed between two batches of a step, an exception in the gradient sync",
         with_lightning(door.same([*lightning, "--accumulate", "3"], [*slow, "--inject", "kill:1@2:backward", "--inject", "throw:0@5:gradient-sync"],
                                  nproc=2, paths=[["adopt", "retry"]]))),
        ("Lightning's Trainer under torchrun on two nodes, told to end, goes on from what it saved", with_lightning(door.stopped_on_two_nodes)),
        *((f"{name} on a device: an exception at the gate, killed in its backward pass", guard(
            device.same(device.names_cuda(*program), [*slow, "--inject", "throw:0@2:gate", "--inject", "kill:1@4:backward"], nproc=2, paths=[["retry", "adopt"], ["retry", "respawn"]])))
          for name, program, guard in (("Hugging Face's Trainer", [*trainer, "--steps", "6"], lambda test: test),
                                       ("a loop with Accelerate", [*loop, "--steps", "6"], lambda test: test),
                                       ("Lightning's Trainer", [*lightning, "--epochs", "1"], with_lightning))),
        ("what is not protected of Lightning is refused by name", with_lightning(door.alone("lightning_mistakes.py"))),
    ], door.bin, [word for word in sys.argv[6:] if word != "--only"]))
