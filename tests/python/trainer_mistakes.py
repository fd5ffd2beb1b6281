"""What kintsugi.torch.huggingface, and loaders and Accelerators of Accelerate's, do not protect is refused by name, or read for what it carries. Needs no run."""
import os
import tempfile
from types import SimpleNamespace

import torch
import transformers
from accelerate import Accelerator, data_loader
from accelerate.utils import DataLoaderConfiguration, GradientAccumulationPlugin
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

import kintsugi
import kintsugi.torch.huggingface as guarded
from kintsugi.torch.accelerated import Counts
from kintsugi.torch.loaders import Batches, makers_of
from kintsugi.torch.prepared import Prepared
from kintsugi.torch.run import TorchRun

RUN = SimpleNamespace(rank=0, world_size=1, replaces=False, resumes=False, device=None, trains=lambda: False)


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"x": torch.zeros(2), "labels": torch.zeros(2)}


class Endless(IterableDataset):
    def __iter__(self):
        yield from iter(Numbers())


class Net(torch.nn.Linear):
    def forward(self, x, labels):
        return {"loss": (super().forward(x) - labels).square().mean()}


class Plain(transformers.Trainer):
    def get_train_dataloader(self):
        return DataLoader(self.train_dataset)


def refused(words, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kintsugi.Error as error:
        assert words in str(error), f"'{words}' is not in '{error}'"
        return
    raise AssertionError(f"not refused: {words}")


def train(kind=transformers.Trainer, model_init=None, data=Numbers(), **settings):
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(output_dir=folder, use_cpu=True, report_to=[], disable_tqdm=True, max_steps=2, **settings)
        model = None if model_init else Net(2, 2)
        guarded.train(RUN, kind(model=model, args=args, train_dataset=data, model_init=model_init))


RUN.trains = lambda: True
refused("this run has trained already", train)
RUN.trains = lambda: False
refused("auto_find_batch_size takes errors", train, auto_find_batch_size=True)
refused("model_init makes the model when training begins", train, model_init=lambda: Net(2, 2))
refused("ignore_data_skip leaves the batches", train, ignore_data_skip=True)
refused("get_train_dataloader gives a DataLoader: have it return self.accelerator.prepare(loader)", train, kind=Plain)
refused("it is a DataLoaderDispatcher of Accelerate's", train, data=Endless())
refused("is an IterableDataset without state_dict", train, data=Endless(), accelerator_config={"dispatch_batches": False})
transformers.__version__ = "5.22.0"
refused("transformers 5.22.0 was not tried", train)

os.environ["ACCELERATE_USE_CPU"] = "1"
one_pass = GradientAccumulationPlugin(num_steps=2, sync_with_dataloader=False)
refused("sync_with_dataloader=False lets", Counts, Accelerator(cpu=True, gradient_accumulation_plugin=one_pass), dict)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4, rng_types=["torch", "generator"],
                          dataloader_config=DataLoaderConfiguration(dispatch_batches=False))
loader = accelerator.prepare(DataLoader(Numbers(), shuffle=True))
refused("its rng_types torch are made the same on all ranks", Prepared, loader)


class Own(RandomSampler):
    def __iter__(self):
        return super().__iter__()


shard = data_loader.BatchSamplerShard(data_loader.BatchSampler(Own(Numbers()), 2, False), 2, 1)
part = DataLoader(data_loader.IterableDatasetShard(Endless(), num_processes=2))
refused("accelerate gives each rank a part of its IterableDataset", Batches, part)
assert Own.__iter__ in [getattr(maker, "__func__", None) for maker in makers_of(DataLoader(Numbers(), batch_sampler=shard))], "it is within another's"
refused("it skips batches", Prepared, accelerator.skip_first_batches(accelerator.prepare(DataLoader(Endless())), 1))
run = SimpleNamespace(_loaders=[], _has_accelerator=False, device=None)
refused("accumulate=2, and accelerate's gradient_accumulation_steps is 4", TorchRun._walk, run, loader, None, 2, None)
refused("loader 'number 0' is one of Accelerate's, which counts its batches: register(accelerator=accelerator, ...)", TorchRun.walked, run, loader)
