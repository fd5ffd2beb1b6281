"""MindSpeed-LLM's high-availability client, unchanged, over mindio_ttp: its flows end with the losses and the bits of the undisturbed run.

  mindspeed_test.py BIN_DIR PACKAGE_FOLDER PYTHON CACHE [WORD]...      CACHE: where the sources are kept once they were fetched
                                                                      WORD: only flows with one of these in their names
"""
import os
import sys
import tempfile
from pathlib import Path

from door import HERE, Door, Failure, Skip, main, skip_without_torch

STEPS = 6
RETRY = ("--enable-hbmfault-repair",)
REBOOT = ("--enable-hbmfault-repair", "--enable-worker-reboot")
# What a scheduler is told: as seen of MindIO with this client.
ARF = ["report_fault_ranks {1: 1} {1: ''}", "report_stop_complete 0 'stop ok' {1: 1}", "report_fault_ranks {1: 1} {1: ''}",
       "report_strategies {1: 1} ['exit', 'dump', 'recover']", "report_result 0 'Mindio do repair operation ok' {} 'recover'"]
UCE = ["report_fault_ranks {1: 0} {1: ''}", "report_stop_complete 0 'stop ok' {1: 0}", "report_fault_ranks {1: 0} {1: ''}",
       "report_strategies {1: 0} ['exit', 'dump', 'retry', 'recover']", "report_result 0 'Mindio do repair operation ok' {} 'retry'"]
PAUSE = ["stop_train -> 0", "report_stop_complete 0 'Controller pause train success!' {}",
         "stood {'losses.0': 3, 'losses.1': 3, 'losses.2': 3, 'losses.3': 3}",
         "report_result 0 'Controller continue training success.' {} 'continue'"]


class MindSpeed:
    def __init__(self, run):
        self.run = run
        self.reference = None

    def begin(self, folder, *options, **more):
        options = [option.replace("{folder}", str(folder)) for option in options]
        return self.run(folder, ["--train-iters", str(STEPS), "--save", f"{folder}/save", *options], **more)

    def undisturbed(self, _):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            run = self.begin(folder, *RETRY)
            codes, losses = run.run(), run.losses()
            if codes != [0] * 4 or any(each != losses[0] for each in losses) or sorted(losses[0]) != list(range(1, STEPS + 1)):
                raise Failure(f"{codes} {losses}\n{run.logs()}")
            self.reference = (run.ends(), losses[0])
            if self.reference[0][0] != self.reference[0][2] or self.reference[0][1] != self.reference[0][3]:
                raise Failure(f"ranks 0 and 2, 1 and 3 hold the same: {self.reference}")

    def same(self, run, first=1):
        if self.reference is None:
            self.undisturbed(None)
        codes = run.run()
        ends, losses = self.reference
        expected = {step: loss for step, loss in losses.items() if step >= first}
        # A process that took another's place has seen the steps since then.
        wrong = [rank for rank, found in enumerate(run.losses())
                 if {step: loss for step, loss in found.items() if expected.get(step) != loss} or not found]
        if codes != [0] * 4 or run.ends() != ends or wrong:
            raise Failure(f"{codes}, ends {run.ends()}\nundisturbed {ends}\nlosses of ranks {wrong} differ: {run.losses()}\n{expected}\n{run.logs()}")

    def repaired(self, options, told=None, **more):
        """`told`: what the scheduler was told and answered."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                run = self.begin(folder, *options, **more)
                self.same(run)
                if told is not None and (run.told() != told or run.codes.get("scheduler") != 0):
                    raise Failure(f"scheduler, which ended with {run.codes.get('scheduler', 'nothing: it hangs')}: {run.told()}, expected {told}\n{run.logs()}")
                # Each step is done once, but the one that an incident broke off, if the client logged it.
                if not list(Path(folder).glob("struck.*")) and "--fault" in options:
                    raise Failure("no fault was struck")
        return test

    def reloaded(self, options, from_step):
        """All load the checkpoint of `from_step` in the last step, and do again what came after it."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                run = self.begin(folder, *options, "--save-interval", "2", "--load", "{folder}/save")
                self.same(run)
                done = [*range(1, STEPS), *range(from_step + 1, STEPS + 1)]
                for rank, steps in enumerate(run.steps()):
                    if steps != done:
                        raise Failure(f"rank {rank} has done steps {steps}, expected {done}\n{run.logs()}")
        return test

    def dumped(self, options, codes, step, **more):
        """What the survivors hold is published, and a second run goes on from it to the undisturbed end."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                run = self.begin(folder, *options, **more)
                found = run.run()
                tracker = Path(folder) / "save" / "latest_checkpointed_iteration.txt"
                if found != codes or not tracker.exists() or tracker.read_text() != str(step):
                    raise Failure(f"exit codes {found}, expected {codes}\n{run.logs()}")
                saved = sorted(str(path.relative_to(tracker.parent)) for path in tracker.parent.glob("iter_*/**/*.pt"))
                if saved != [f"iter_{step:07d}/mp_rank_00/{name}.pt" for name in ("distrib_optim", "model_optim_rng")]:
                    raise Failure(f"saved {saved}\n{run.logs()}")
                with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as second:
                    self.same(self.begin(second, *RETRY, "--load", f"{folder}/save"), first=step + 1)
        return test


def flows(run):
    m = MindSpeed(run)
    return [
        ("an undisturbed run: TTPReplicaOptimizer in bf16, four ranks, two copies", m.undisturbed),
        ("UCE, the state of a rank is lost: repaired from its copy", m.repaired([*RETRY, "--fault", "uce-high:1@4:forward"])),
        ("UCE, nothing is lost", m.repaired([*RETRY, "--fault", "uce-low:2@4:forward"])),
        ("network retry", m.repaired([*RETRY, "--fault", "hccl:3@4:forward"])),
        ("a RuntimeError: dump, and a second run goes on", m.dumped([*RETRY, "--fault", "runtime:1@4:forward"], [2, 2, 2, 2], 3)),
        ("a ValueError: dump, and a second run goes on", m.dumped([*RETRY, "--fault", "value:1@4:forward"], [2, 1, 2, 2], 3)),
        ("killed, nobody takes its place: dump, and a second run goes on",
         m.dumped([*RETRY, "--fault", "kill:1@4:forward"], [2, -9, 2, 2], 3)),
        ("rank 0 killed: its part is rank 2's, which writes, and rank 1 sends it the other one",
         m.dumped([*RETRY, "--fault", "kill:0@4:forward"], [-9, 2, 2, 2], 3, scheduler="dump")),
        ("killed, and then the saver that others wait for: the next holder writes",
         m.dumped([*RETRY, "--fault", "kill:1@4:forward", "--fault", "kill:0@4:save"], [-9, -9, 2, 2], 3, scheduler="dump")),
        ("killed in forward: another process takes its place, without a scheduler",
         m.repaired([*REBOOT, "--fault", "kill:1@4:forward"], respawn=True)),
        ("killed within its update", m.repaired([*REBOOT, "--fault", "kill:3@4:update"], respawn=True)),
        ("killed in forward, with a scheduler", m.repaired([*REBOOT, "--fault", "kill:1@4:forward"], ARF, respawn=True, scheduler="answer")),
        ("UCE with a scheduler, the state of a rank is lost", m.repaired([*RETRY, "--fault", "uce-high:1@4:forward"], UCE, scheduler="answer")),
        ("rank 0 killed, the scheduler hosts the controller",
         m.repaired([*REBOOT, "--fault", "kill:0@4:forward"], [line.replace("{1:", "{0:") for line in ARF], respawn=True, scheduler="answer")),
        ("two faults of one run, each other's copy: killed, then its state lost",
         m.repaired([*REBOOT, "--fault", "kill:1@3:forward", "--fault", "uce-high:3@5:forward"], respawn=True)),
        ("killed twice, a rank and then the one that repaired it",
         m.repaired([*REBOOT, "--fault", "kill:1@3:forward", "--fault", "kill:3@5:forward"], respawn=True)),
        ("a precision error: all load the newest checkpoint", m.reloaded([*RETRY, "--fault", "precision:1@6:forward"], 4)),
        ("a precision error that names an older checkpoint: all load that one", m.reloaded([*RETRY, "--fault", "precision-2:1@6:forward"], 2)),
        ("all ranks raise such a precision error",
         m.reloaded([*RETRY, *(word for rank in range(4) for word in ("--fault", f"precision-2:{rank}@6:forward"))], 2)),
        ("pause and continue, at the step that all ranks have in hand",
         m.repaired([*REBOOT, "--fault", "pause:0@3:forward"], PAUSE, scheduler="pause:struck.0")),
    ]


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    door = Door(arguments)
    skip_without_torch(door)
    os.environ.update({name: value for name, value in door.environment().items() if name != "PYTHONPATH"})
    os.environ["PYTHONPATH"] = f"{door.package}:{door.package}/kintsugi/compat"
    sys.path[:0] = [str(HERE / "mindspeed"), str(HERE / "mindspeed" / "stand_ins"), str(door.package / "kintsugi" / "compat"), str(door.package)]
    import sources
    import world

    try:
        sys.path[2:2] = sources.fetch(Path(arguments[3]))
        if not world.enter_own_network():
            raise Skip("no network of its own (unshare): the client's port 8000 cannot be chosen")
    except Skip as why:
        print(f"SKIPPED: {why}")
        sys.exit(77)
    import trainer  # noqa: F401

    sys.exit(main(flows(world.Run), door.bin, arguments[4:]))
