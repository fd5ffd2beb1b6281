"""What kintsugi.torch.lightning does not protect is refused by name, or read for what it carries. Needs no run: something with its rank stands in."""
import datetime
import tempfile
from types import SimpleNamespace

import lightning
import torch
from lightning.pytorch import callbacks
from lightning.pytorch.demos.boring_classes import BoringModel

import kintsugi
import kintsugi.torch.lightning as guarded
from kintsugi.torch.loaders import makers_of
from kintsugi.torch.streams import Streams

RUN = SimpleNamespace(rank=0, world_size=2, trains=lambda: False)


class ByHand(BoringModel):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class Own(lightning.pytorch.plugins.MixedPrecision):
    def optimizer_step(self, *args, **named):
        return super().optimizer_step(*args, **named)


def refused(words, model=None, named=None, **settings):
    with tempfile.TemporaryDirectory() as folder:
        settings = {"strategy": "ddp", "devices": 2, "plugins": [guarded.Environment(RUN)], **settings}
        try:
            trainer = lightning.Trainer(accelerator="cpu", logger=False, default_root_dir=folder, enable_progress_bar=False, **settings)
            guarded.fit(RUN, trainer, model or BoringModel(), **named or {})
        except kintsugi.Error as error:
            assert words in str(error), f"'{words}' is not in '{error}'"
            return
    raise AssertionError(f"not refused: {words}")


RUN.trains = lambda: True
refused("this run has trained already")
RUN.trains = lambda: False
refused("ckpt_path", named={"ckpt_path": "last"})
refused("SingleDeviceStrategy", strategy="auto", devices=1, plugins=[])
refused("Environment(run)] is missing", plugins=[lightning.pytorch.plugins.environments.LightningEnvironment()], devices=1)
refused("it counts 3 processes, the run has 2", devices=3)
refused("by hand", model=ByHand())
refused("reload_dataloaders_every_n_epochs", reload_dataloaders_every_n_epochs=1)
refused("is a time", val_check_interval=datetime.timedelta(minutes=1))
refused("callback Timer", max_time="00:00:01:00")
refused("callback GradientAccumulationScheduler", callbacks=[callbacks.GradientAccumulationScheduler({1: 2})])
refused("callback LearningRateFinder", callbacks=[callbacks.LearningRateFinder()])
refused("callback StochasticWeightAveraging", callbacks=[callbacks.StochasticWeightAveraging(swa_lrs=1e-2)])
refused("Own has an optimizer_step of its own", plugins=[guarded.Environment(RUN), Own("bf16-mixed", "cpu")])
averaging = lightning.pytorch.strategies.DDPStrategy(model_averaging_period=2)
refused("model_averaging_period", strategy=averaging)


class Own(torch.utils.data.Sampler):
    def __iter__(self):
        yield from range(8)

    def __len__(self):
        return 8


class Stateful(torch.utils.data.Dataset):
    given = 0

    def __len__(self):
        return 8

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.given = state["given"]


sampler = lightning.fabric.utilities.distributed.DistributedSamplerWrapper(Own(), num_replicas=2, rank=0)
assert Own.__iter__ in [getattr(maker, "__func__", None) for maker in makers_of(torch.utils.data.DataLoader(range(8), sampler=sampler))], "it is within Lightning's"
data = Stateful()
streams = Streams({"loader 0": torch.utils.data.DataLoader(torch.utils.data.Subset(data, range(4)))})
epoch, data.given = streams.take(), 5
streams.put_back(epoch)
assert data.given == 0, "the state of a data set goes with its loader's generators"
lightning.__version__ = "2.5.1"
refused("lightning 2.5.1 was not tried")
