"""Optimizers under Kintsugi leave what they leave under plain torch: parameters, states and settings, bit for bit.

  optimizers_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--fakes FOLDER] [--only WORD]...

--fakes: with state on the fake device, from this folder with libkintsugi_fake_*.so.
"""
import sys

from compared import Compared
from door import main, opened


if __name__ == "__main__":
    door, options = opened()
    alone, pair = Compared(door, "torch_optimizers.py"), Compared(door, "torch_gan.py")
    schedules, early = Compared(door, "torch_schedulers.py"), Compared(door, "torch_early.py")
    compared = [
        ("one after the other, undisturbed, and gone on with from its middle", alone.resumed()),
        ("one after the other, killed in the first update, an exception in a later one, killed in a forward pass",
         alone.same("kill:1@1:update", "throw:1@3:update", "kill:0@5:forward", paths=[("respawn", "rebuild", "adopt")])),
        ("together, killed in the first step and in the second update",
         alone.same("kill:1@1:backward", "kill:1@2:update", more=["--update"], paths=[("adopt", "respawn")])),
        ("two updates in a step, undisturbed", pair.same()),
        ("two updates in a step, exceptions and kills between them, behind the second, and where the second is left out",
         pair.same("throw:1@2,collective=4", "kill:1@3:gradient-sync", "throw:0@4:update", "kill:0@5:update", "throw:1@6:param-sync",
                   paths=[("retry", "adopt", "rebuild", "respawn", "retry")])),
        ("parameters that move before the gate: killed in the second step and in an update, exceptions in a forward pass and amid what follows an update",
         early.same("kill:1@2:backward", "kill:0@5:update", "throw:1@8:forward", more=["--throw", "0@11"],
                    paths=[("adopt", "respawn", "retry", "rebuild")])),
    ]
    of_host = [  # schedules: on a device torch's own SWA divides whole numbers, which it refuses
        ("schedules, averages and loss scales, undisturbed, and gone on with from the middle", schedules.resumed(4)),
        ("schedules, averages and loss scales: killed in an update, in update_bn, behind an update and in a forward pass, an exception in an update",
         schedules.same("kill:1@2:update", "throw:0@3:update", "kill:0@6:param-sync", "kill:1@8:forward", more=["--die"],
                        paths=[("respawn", "rebuild", "adopt", "respawn", "adopt")])),
        *((f"{name}: killed in an update, exceptions in another and as the last one's parts are gathered", Compared(door, "torch_zero.py", "--how", how).same(
            "kill:1@3:update", "throw:0@6:update", "throw:1@12:param-sync", options=options, paths=paths))
          for name, how, options, paths in (
              ("ReplicaOptimizer", "replicas", (), [("respawn", "rebuild", "retry")]),
              ("ZeroRedundancyOptimizer", "zero", ("--snapshot-every", "2"), [("reload", "reload", "retry")]))),
        ("each public class stands in the table of kinds", door.alone("torch_kinds.py")),
        ("what an optimizer keeps is kept, or refused by name", door.alone("torch_kept.py")),
        ("what is not registered is refused by name", door.alone("torch_forgotten.py")),
    ]
    sys.exit(main(compared if options.fakes else compared + of_host, door.bin, options.only))
