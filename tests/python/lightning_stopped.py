"""The example of Lightning on two nodes of one rank each, where torchrun is told to end.

  lightning_stopped.py [STEP]      rank 0 sends its launcher SIGTERM behind this step, in the first life; every rank tells what it ends with
"""

import hashlib
import os
import runpy
import signal
import sys
from pathlib import Path

import lightning

STOP = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 0
EXAMPLE = Path(__file__).resolve().parents[2] / "integrations/examples/torch_lightning/train.py"


class Stops(lightning.Callback):
    """An attribute would be the run's, and come back with it."""

    def on_train_start(self, trainer, module):
        print(f"rank {trainer.global_rank} began {trainer.global_step}", flush=True)

    def on_train_batch_end(self, trainer, module, *_):
        if trainer.global_step == STOP and trainer.global_rank == 0 and not Path("saves").exists():
            os.kill(os.getppid(), signal.SIGTERM)

    def on_train_end(self, trainer, module):
        digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in module.state_dict().values())).hexdigest()[:16]
        print(f"rank {trainer.global_rank} steps {trainer.global_step} parameters {digest}", flush=True)


def trainer_of(given):
    def make(**settings):
        return given(**{**settings, "devices": 1, "num_nodes": 2, "callbacks": [*settings["callbacks"], Stops()]})

    return make


lightning.Trainer = trainer_of(lightning.Trainer)
runpy.run_path(str(EXAMPLE), run_name="__main__")
