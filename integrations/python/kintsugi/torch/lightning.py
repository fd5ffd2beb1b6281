"""PyTorch Lightning's Trainer survives: `fit(run, trainer, model, loader)` in place of `trainer.fit(model, loader)`.

    run = kintsugi.torch.join()
    torch.distributed.init_process_group("kintsugi")
    trainer = lightning.Trainer(strategy="ddp", plugins=[kintsugi.torch.lightning.Environment(run)], ...)
    kintsugi.torch.lightning.fit(run, trainer, model, loader)

Trainer sets up once; its fit loop is entered again where an incident made a step void. What Lightning does behind an update
(schedulers, hooks, validation, checkpoints, the end of an epoch) it then does again by its own code: the loop begins with the last
batch of the step that all ranks have, whose forward, backward and update are left out.

A step that is left out, since its data was to blame, is to Lightning one whose training_step gives None (in one process, where it
has that).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import lightning  # type: ignore[import-not-found]
import torch
from lightning.fabric.plugins.precision.amp import _optimizer_handles_unscaling  # type: ignore[import-not-found]
from lightning.pytorch import callbacks  # type: ignore[import-not-found]
from lightning.pytorch.loops.fetchers import _DataLoaderIterDataFetcher  # type: ignore[import-not-found]
from lightning.pytorch.plugins import MixedPrecision, Precision  # type: ignore[import-not-found]
from lightning.pytorch.plugins.environments import ClusterEnvironment  # type: ignore[import-not-found]
from lightning.pytorch.strategies import DDPStrategy  # type: ignore[import-not-found]
from lightning.pytorch.trainer.connectors.logger_connector.result import _Metadata, _ResultMetric, _Sync  # type: ignore[import-not-found]
from torch.utils._pytree import tree_map_only
from torchmetrics import Metric  # type: ignore[import-not-found]

from .._errors import Error
from ..abi import Code
from . import agentless, off
from .companions import Companion, companions_of, functions_of, is_theirs, is_within
from .loader_workers import try_out, undrawn
from .loaders import makers_of
from .randomness import Randomness
from .run import TorchRun
from .streams import Streams


def fit(run: TorchRun, trainer: Any, model: Any, *arguments: Any, **named: Any) -> None:
    """Trains to the end, whatever strikes. The arguments are those of Trainer.fit."""
    if off.is_off():
        trainer.fit(model, *arguments, **named)
        return run.register(model=trainer.strategy.model, optimizer=trainer.optimizers[0])  # type: ignore[no-any-return]
    if named.get("ckpt_path") is not None or len(arguments) > 3:
        raise _refusal("ckpt_path replaces the weights behind the run's back: a run resumes with `kintsugi run --resume`")
    if not lightning.__version__.startswith("2.6."):
        raise _refusal(f"lightning {lightning.__version__} was not tried, 2.6 was: what its loops keep differs between versions")
    _refuse_settings(run, trainer, model)
    loop = _Loop(run, trainer)
    trainer.fit_loop.run = loop.train
    if agentless.handles_stop():
        # It would leave its loop behind the batch in hand, before the run has saved.
        trainer._signal_connector._sigterm_notifier_fn = lambda *_: None
    trainer.strategy.reduce = _reduce_of(trainer.strategy)
    trainer.strategy.broadcast = loop.broadcast_of(trainer.strategy)
    run.keep_world("Lightning's Trainer")
    trainer.fit(model, *arguments, **named)


def _reduce_of(strategy: Any) -> Any:
    """The strategy's, and means of whole numbers (how many samples a metric is of), which are averaged as over Gloo."""
    reduce = strategy.reduce

    def reduce_any(tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        if isinstance(tensor, torch.Tensor) and not tensor.is_floating_point() and reduce_op in ("mean", "avg"):
            total = reduce(tensor, group, "sum")
            return total.copy_(total / torch.distributed.get_world_size(group))
        return reduce(tensor, group, reduce_op)

    return reduce_any


class Environment(ClusterEnvironment):  # type: ignore[misc]
    """Tells Trainer that the run has started its processes, and which of them this is."""

    def __init__(self, run: TorchRun) -> None:
        self._run = run

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return os.environ.get("MASTER_ADDR", "127.0.0.1")

    @property
    def main_port(self) -> int:
        return int(os.environ.get("MASTER_PORT", "0"))

    @staticmethod
    def detect() -> bool:
        return False  # it needs its run: only as a plugin

    def world_size(self) -> int:
        return self._run.world_size

    def set_world_size(self, size: int) -> None:
        if size != self.world_size():
            raise _refusal(f"it counts {size} processes, the run has {self.world_size()}: set devices to the ranks of each host, "
                           "and num_nodes")  # fmt: skip

    def global_rank(self) -> int:
        return self._run.rank

    def set_global_rank(self, rank: int) -> None:
        pass  # the run's

    def local_rank(self) -> int:
        return int(os.environ.get("LOCAL_RANK", "0"))

    def node_rank(self) -> int:
        return int(os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", "0")))


def _refusal(reason: str) -> Error:
    return Error(f"Lightning's Trainer cannot be protected: {reason}", Code.INVALID_ARGUMENT)


# They change weights, gradients' accumulation or parameter groups behind the run's back, train before training begins, or stop by the clock.
_REFUSED_CALLBACKS = (
    callbacks.StochasticWeightAveraging,
    callbacks.WeightAveraging,
    callbacks.GradientAccumulationScheduler,
    callbacks.BaseFinetuning,
    callbacks.ModelPruning,
    callbacks.Timer,
    callbacks.LearningRateFinder,
    callbacks.BatchSizeFinder,
)


def _refuse_settings(run: TorchRun, trainer: Any, model: Any) -> None:
    strategy, plugin = trainer.strategy, trainer.precision_plugin
    found = [type(callback).__name__ for callback in trainer.callbacks if isinstance(callback, _REFUSED_CALLBACKS)]
    reasons = {
        "this run has trained already, and a run has one training: make the next a run of its own, from what this one saves":
            run.trains() or "run" in vars(trainer.fit_loop),
        f"its strategy is {type(strategy).__name__}: only strategy='ddp' was tried": type(strategy) is not DDPStrategy,
        "plugins=[kintsugi.torch.lightning.Environment(run)] is missing": not isinstance(
            getattr(strategy, "cluster_environment", None), Environment
        ),
        f"its precision plugin {type(plugin).__name__} has an optimizer_step of its own": type(plugin).optimizer_step not in (Precision.optimizer_step, MixedPrecision.optimizer_step),
        "model_averaging_period averages weights outside of the update": getattr(strategy, "_model_averaging_period", None),
        "the model optimises by hand (automatic_optimization=False): write a loop with run.train": not model.automatic_optimization,
        "reload_dataloaders_every_n_epochs makes a loader anew, which may give other batches": trainer.reload_dataloaders_every_n_epochs,
        "val_check_interval is a time, and no two runs take the same": getattr(trainer, "_val_check_time_interval", None) is not None,
        f"callback {', '.join(found)} changes what is trained, or when it ends, behind the run's back": found,
    }
    for reason, holds in reasons.items():
        if holds:
            raise _refusal(reason)


class _Kept:
    """What Lightning knows at a step's gate beside model and optimizer: an object of the run's. It stays as it was at the gate, also at the
    step's end: the loop is entered again with what follows the update."""

    # Of the logger connector: what was logged last, and where in an epoch it stands.
    _CONNECTOR = ("_callback_metrics", "_logged_metrics", "_progress_bar_metrics", "_first_loop_iter", "_current_fx")
    _METRIC = ("_update_count", "_computed", "_forward_cache", "has_reset")

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._fit = trainer.fit_loop
        self.epoch_random: dict[str, Any] = {}  # the generators before the loader's iterator was made
        self.loss: Any = None  # of the step's last batch; None where no step has come to its gate
        self.loaded: dict[str, Any] | None = None
        self._taken: dict[str, Any] = {}
        own = {str(number): one for number, one in enumerate(self.own_things())}
        self._companions: dict[str, Companion] = companions_of(own, trainer.lightning_module)

    def own_things(self) -> list[Any]:
        """Of the script's own, beside the model."""
        return [one for one in (*self._trainer.callbacks, self._trainer.datamodule) if one is not None and not is_theirs(type(one))]

    def of_callbacks(self) -> list[Any]:
        """What of the script's own callbacks is kept."""
        return [*self._companions.values(), *(one for one in self._trainer.callbacks if type(one).state_dict is not callbacks.Callback.state_dict)]

    def _progress(self) -> list[Any]:
        epoch = self._fit.epoch_loop
        return [self._fit.epoch_progress, epoch.batch_progress, epoch.scheduler_progress, epoch.automatic_optimization.optim_progress,
                epoch.val_loop.batch_progress]  # fmt: skip

    def take(self) -> None:
        """A gate is about to be passed."""
        trainer, epoch = self._trainer, self._fit.epoch_loop
        connector = trainer._logger_connector
        taken = {
            "batches": self._fit.max_batches,
            "progress": [progress.state_dict() for progress in self._progress()],
            "stepped": epoch._batches_that_stepped,
            "epoch_random": self.epoch_random,
            "loss": self.loss,
            "should_stop": trainer.should_stop,
            "schedulers": [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs],
            "callbacks": [callback.state_dict() for callback in trainer.callbacks],
            "companions": {name: one.state_dict() for name, one in self._companions.items()},
            "saved": [getattr(callback, "_last_global_step_saved", None) for callback in trainer.callbacks],
            "connector": {name: getattr(connector, name) for name in self._CONNECTOR},
            "logged": {key: self._of_logged(metric) for key, metric in epoch._results.items()},
            "metrics": {key: self._of_metric(metric) for key, metric in self._metrics().items()},
        }
        self._taken = copy.deepcopy(taken)

    def state_dict(self) -> dict[str, Any]:
        return self._taken

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["batches"] != self._fit.max_batches:
            raise _refusal(f"an epoch had {state['batches']} batches and has {self._fit.max_batches}: resume with as many ranks and "
                           "the same loader")  # fmt: skip
        self.loaded = self._taken = state

    def rewind(self) -> None:
        """Counts as they were before the last batch of the step whose gate this is."""
        assert self.loaded is not None
        for progress, state in zip(self._progress(), self.loaded["progress"]):
            progress.load_state_dict(copy.deepcopy(state))
        epoch = self._fit.epoch_loop
        epoch._batches_that_stepped = self.loaded["stepped"]
        epoch._skip_next_val = False
        self.epoch_random, self.loss = self.loaded["epoch_random"], self.loaded["loss"]
        batch, step = epoch.batch_progress, epoch.automatic_optimization.optim_progress.optimizer.step
        if self.loss is not None:
            for tracker in (batch.total, batch.current):
                tracker.ready = tracker.started = tracker.processed = tracker.completed
            for tracker in (step.total, step.current):
                tracker.ready = tracker.completed
            batch.is_last_batch = False

    def put_back(self) -> None:
        """All but the counts."""
        assert self.loaded is not None
        state, trainer = copy.deepcopy(self.loaded), self._trainer
        trainer.should_stop = state["should_stop"]
        for config, scheduler in zip(trainer.lr_scheduler_configs, state["schedulers"]):
            config.scheduler.load_state_dict(scheduler)
        for callback, own, saved in zip(trainer.callbacks, state["callbacks"], state["saved"]):
            if isinstance(callback, callbacks.ModelCheckpoint):
                callback.dirpath = own["dirpath"]  # it takes nothing back of another folder
            if own:
                callback.load_state_dict(own)
            if saved is not None:
                callback._last_global_step_saved = saved  # all ranks save again, or none: it holds collectives
        for name, companion in self._companions.items():
            companion.load_state_dict(state["companions"][name])
        for name, value in state["connector"].items():
            setattr(trainer._logger_connector, name, value)
        results = self._fit.epoch_loop._results
        for key in [key for key in results if key not in state["logged"]]:
            del results[key]
        for key, logged in state["logged"].items():
            if key not in results:  # a new process, which has made no step
                results[key] = self._logged_anew(key, logged)
            self._load(results[key], logged["values"])
        metrics = self._metrics()
        for key, values in state["metrics"].items():
            self._load(metrics[key], values)

    def _metrics(self) -> dict[str, Metric]:
        return {name: module for name, module in self._trainer.lightning_module.named_modules() if isinstance(module, Metric)}

    def _of_metric(self, metric: Any) -> dict[str, Any]:
        """Without its graph: one that is given a loss has that in its newest value."""
        return {name: tree_map_only(torch.Tensor, torch.Tensor.detach, getattr(metric, name)) for name in (*metric._defaults, *self._METRIC) if hasattr(metric, name)}

    def _of_logged(self, metric: Any) -> dict[str, Any]:
        """With what self.log() said of it, but for the functions and groups in that."""
        meta, sync = metric.meta, metric.meta.sync
        said = {field.name: getattr(meta, field.name) for field in dataclasses.fields(meta) if field.name not in ("_sync", "reduce_fx")}
        return {
            "values": self._of_metric(metric), "is_tensor": metric.is_tensor,
            "meta": {**said, "reduce_fx": meta.reduce_fx.__name__},
            "sync": {"_should": sync.should, "rank_zero_only": sync.rank_zero_only, "_op": sync.op},
            "has_group": sync.group is not None,
        }  # fmt: skip

    def _logged_anew(self, key: str, logged: dict[str, Any]) -> Any:
        if logged["has_group"]:
            raise Error(f"'{key}' is logged with a sync_dist_group, which is not known to this new process: log it without", Code.FAILED_PRECONDITION)
        meta = _Metadata(**logged["meta"])
        meta.sync = _Sync(fn=self._trainer.strategy.reduce, **logged["sync"])
        metric = _ResultMetric(meta, logged["is_tensor"])
        if not logged["is_tensor"]:
            metric.value = self._trainer.lightning_module.get_submodule(meta.metric_attribute)
        return metric

    @staticmethod
    def _load(metric: Any, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(metric, name, value)


class _Loop:
    """Trainer's fit loop within the guard, and its steps as the run's."""

    _HOOKS = ("on_train_batch_start", "on_train_batch_end", "on_train_start")  # that follow, or come before, the newest step

    def __init__(self, run: TorchRun, trainer: Any) -> None:
        self._run = run
        self._trainer = trainer
        self._fit = trainer.fit_loop
        self._epoch = trainer.fit_loop.epoch_loop
        self._automatic = self._epoch.automatic_optimization
        self._random = Randomness(run.device)
        self._drawn: Streams  # that the train loaders draw from
        self._at_entry: dict[str, Any] = {}
        self._kept: _Kept
        self._loss = 0.0
        self._hook: str | None = None  # that Lightning was in where it began to optimise
        self._guarded = False
        self._in_step = False
        self._entering = False  # the loader's iterator is to be made anew, and taken to where the epoch stands
        self._replaying = False  # the next batch is one whose step all ranks have
        self._lightnings = {"run": self._fit.run, "optimize": self._automatic.run, "start": self._epoch.on_run_start, "validate": self._epoch.val_loop.run,
                            "save": trainer.save_checkpoint}  # fmt: skip

    def broadcast_of(self, strategy: Any) -> Any:
        """The strategy's, but a newcomer that sets up has nobody to hear from: it answers itself, and learns later what was kept."""
        broadcast = strategy.broadcast
        return lambda thing, src=0: thing if self._run.replaces and not self._guarded else broadcast(thing, src)

    def train(self) -> None:
        """In place of the fit loop's run: Trainer has set up model, optimizers and callbacks."""
        trainer, fit = self._trainer, self._fit
        self._kept = _Kept(trainer)
        fit._load_combined_loader_states = self._begin_loaders  # called right before the loader's first iterator is made
        fit.setup_data()
        if trainer.enable_validation:  # it has collectives, which a newcomer would make among ranks that do not
            trainer.validating = True
            self._epoch.val_loop.setup_data()
            trainer.training = True
        if fit.skip:
            return
        self._refuse_setup()
        self._kept.take()
        self._run.note_kept(*(config.scheduler for config in trainer.lr_scheduler_configs), *self._kept.of_callbacks(), loaders=self._loaders())
        scaler = self._scaler()
        self._run.register(take_over={"lightning": "rank-zero"}, model=trainer.strategy.model, optimizer=trainer.optimizers[0],
                           lightning=self._kept, **({} if scaler is None else {"scaler": scaler}))  # fmt: skip
        self._automatic.run = self._optimize
        self._epoch.on_run_start = self._start_epoch
        self._epoch.val_loop.run = self._validate
        trainer.save_checkpoint = self._standing_still("save")
        trainer.precision_plugin.optimizer_step = self._update
        warnings.filterwarnings("ignore", message="You're resuming from a checkpoint that ended before the epoch ended")
        self._run.passes_steps_by = True
        self._run.guard(self._enter, self._codes)

    def _loaders(self) -> list[Any]:
        return list(self._fit._combined_loader.flattened)

    def _scaler(self) -> Any:
        """Of a scaled loss (precision="16-mixed"); None: there is none."""
        return getattr(self._trainer.precision_plugin, "scaler", None)

    def _codes(self, error: BaseException | None) -> Iterator[tuple[Any, BaseException | None]]:
        """The hooks of the newest committed step are called again, wherever a fault has struck."""
        for thing in (*self._kept.own_things(), self._trainer.lightning_module):
            for method in functions_of(thing):
                if error is None or method.__name__ in self._HOOKS:
                    yield method, None
                elif method.__name__ == "training_step" and self._in_step and not self._run.has_updated():
                    yield method, error if is_within(error, method) else None
        yield from ((maker, None) for loader in self._loaders() for maker in makers_of(loader))

    def _validate(self) -> Any:
        self._epoch.val_loop._results.reset()  # one that was broken off has left its sums there
        return self._standing_still("validate")()

    def _standing_still(self, what: str) -> Callable[..., Any]:
        """It may take as long as it likes. A fault within breaks it off, and it is done again with what follows the newest update."""

        def do(*args: Any, **named: Any) -> Any:
            with self._run.activity("section"):  # the one that has no limit
                return self._lightnings[what](*args, **named)

        return do

    def _refuse_setup(self) -> None:
        if len(self._trainer.optimizers) != 1:
            raise _refusal(f"the model has {len(self._trainer.optimizers)} optimizers: automatic optimisation has one")
        if self._fit.max_batches == float("inf"):
            raise _refusal("the train loader has no length: where an epoch stands cannot be known")
        if isinstance(self._fit._data_fetcher, _DataLoaderIterDataFetcher):
            raise _refusal("training_step takes dataloader_iter: it reads ahead of its step; take batch")

    def _begin_loaders(self) -> None:
        for loader in self._loaders():
            if getattr(loader, "persistent_workers", False):
                undrawn(loader)
        self._drawn = Streams({f"loader {number}": loader for number, loader in enumerate(self._loaders())}, self._run.device)
        self._note_random()

    def _note_random(self) -> None:
        self._drawn.look()
        self._kept.epoch_random = self._drawn.take()

    def _enter(self, first: int) -> None:
        self._at_entry = self._random.state_dict()
        self._guarded = True
        self._in_step = False
        trainer, kept = self._trainer, self._kept
        if trainer.validating:
            self._epoch.val_loop._module_mode.restore(trainer.lightning_module)
        trainer.training = True
        if kept.loaded is not None:
            kept.rewind()
            kept.put_back()
            self._entering = True
        self._replaying = kept.loss is not None
        if first != self._epoch.global_step + self._replaying:
            raise Error(f"the run stands at step {first}, what is kept of Lightning at {self._epoch.global_step + self._replaying}", Code.INTERNAL)
        self._fit.restarting = self._replaying
        self._lightnings["run"]()

    def _start_epoch(self, fetcher: Any) -> None:
        """The epoch loop's on_run_start, which makes the loader's iterator where an epoch begins."""
        if not self._entering:
            if self._trainer.current_epoch > 0:
                self._note_random()
            self._lightnings["start"](fetcher)
            return
        self._entering = False
        self._lightnings["start"](fetcher)
        now = self._random.state_dict()
        if self._drawn.lacks(self._kept.epoch_random):
            with self._drawn.preserved():
                for loader in self._loaders():
                    try_out(loader)
        self._drawn.put_back(self._kept.epoch_random)
        iter(fetcher)
        for _ in range(self._epoch.batch_progress.current.ready):
            next(fetcher)
        self._random.load_state_dict(now)
        for loop in (self._fit, self._epoch, self._epoch.val_loop):
            loop._restarting = False
            loop.reset_restart_stage()

    def _optimize(self, optimizer: Any, batch_idx: int, kwargs: Any) -> Any:
        """Automatic optimisation's run: one batch forward and backward, and the update where gradients are complete."""
        if self._replaying:
            return self._replay()
        step = self._epoch.global_step + 1
        self._hook = self._trainer.lightning_module._current_fx_name
        if not self._in_step:
            self._loss = 0.0
            self._run.begin_step(step)
            self._in_step = True
        if self._run.leaves_out(step):
            output = self._pass_by(optimizer, batch_idx, kwargs)
        else:
            output = self._lightnings["optimize"](optimizer, batch_idx, kwargs)
        if self._epoch.global_step == step:
            self._run.end_step(step)
            self._in_step = False
        elif output:
            self._loss += float(output["loss"])
        return output

    def _pass_by(self, *arguments: Any) -> Any:
        self._automatic._training_step = lambda _batch: self._automatic.output_result_cls(closure_loss=None)
        try:
            return self._lightnings["optimize"](*arguments)
        finally:
            del self._automatic._training_step

    def _replay(self) -> dict[str, Any]:
        self._replaying = False
        left_out = self._run.leaves_out(self._epoch.global_step + 1)
        self._run.arrived()  # hooks before the step have changed what was put back
        self._kept.put_back()
        self._random.load_state_dict(self._at_entry)
        step = self._automatic.optim_progress.optimizer.step
        step.increment_ready()
        step.increment_completed()
        return {} if left_out else {"loss": self._kept.loss.clone()}

    def _update(self, optimizer: Any, model: Any, closure: Any, **kwargs: Any) -> Any:
        """The precision plugin's optimizer_step, but backward comes before the update and not within."""
        loss = closure()
        scaler, left_out = self._scaler(), self._run.leaves_out(self._run.at)
        if scaler is not None and not left_out and not _optimizer_handles_unscaling(optimizer):
            scaler.unscale_(optimizer)
        self._trainer.precision_plugin._after_closure(model, optimizer)
        self._kept.loss = torch.tensor(torch.nan) if left_out else loss.detach().clone()
        self._kept.take()
        if left_out:
            self._run.update_nothing()
            return None
        self._run.report(self._loss + float(loss))
        with self._as_at_end():
            if scaler is None:
                optimizer.step(**kwargs)
            else:
                scaler.step(optimizer, **kwargs)
                scaler.update()
        return loss

    @contextlib.contextmanager
    def _as_at_end(self) -> Iterator[None]:
        """What Lightning notes in the module's attributes, which the gate takes: the hook that it is in, which is over at the step's end, and metrics by
        their identity in this process, which is looked up again where it is None."""
        module = self._trainer.lightning_module
        module._current_fx_name, hook = self._hook, module._current_fx_name
        module._metric_attributes = None
        try:
            yield
        finally:
            module._current_fx_name = hook
