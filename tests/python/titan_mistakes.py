"""What kintsugi.torch.titan does not protect is refused by name. Needs no run: a trainer with torchtitan's names stands in."""
from types import SimpleNamespace

import torch
from torch.distributed._composable.replicate import replicate

import kintsugi
import kintsugi.torch.titan as guarded


class Loader:
    def state_dict(self):
        return {}

    def load_state_dict(self, _):
        pass


class OptimizersInBackwardContainer(list):
    pass


class ManyOptimizers(torch.optim.SGD):
    def __iter__(self):
        return iter([self])


def trainer(**other):
    model = torch.nn.Linear(2, 2)
    optimizer = ManyOptimizers(model.parameters(), lr=0.1)
    return SimpleNamespace(**{
        "model_parts": [model], "optimizers": optimizer, "lr_schedulers": [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)],
        "dataloader": Loader(), "step": 0, "ntokens_seen": 0, "state_dict": dict, "load_state_dict": print, "batch_generator": iter,
        "forward_backward_step": print, "train_step": next, "job_config": SimpleNamespace(training=SimpleNamespace(steps=5)), **other})


def without(name):
    made = trainer()
    delattr(made, name)
    return made


def refused(words, made, error_of=kintsugi.Error):
    try:
        guarded.train(None, made)
    except error_of as error:
        assert words in str(error), f"'{words}' is not in '{error}'"
        return
    raise AssertionError(f"not refused: {words}")


def setting(name, value=True):
    return trainer(job_config=SimpleNamespace(training=SimpleNamespace(steps=5), **{name: value}))


# As it is it comes as far as the run, of which there is none.
refused("register", trainer(), AttributeError)

for missing in ("model_parts", "optimizers", "lr_schedulers", "dataloader", "batch_generator", "forward_backward_step", "train_step",
                "state_dict", "load_state_dict", "step"):
    refused(f"SimpleNamespace has no {missing}", without(missing))
refused("no training.steps", without("job_config"))
refused("its optimizers cannot be gone through", trainer(optimizers=torch.optim.SGD([torch.zeros(1)], lr=0.1)))
refused("its lr_schedulers hold a Loader", trainer(lr_schedulers=[Loader()]))
refused("its optimizers hold a Loader", trainer(optimizers=[Loader()]))
refused("pp_has_first_stage", trainer(pp_has_first_stage=True))
refused("pp_has_first_stage", trainer(parallel_dims=SimpleNamespace(pp_enabled=True)))
refused("torchft is on", setting("fault_tolerance", SimpleNamespace(enable=True)))
refused("torchft is on", trainer(ft_manager=SimpleNamespace(enabled=True)))
refused("validation is on", setting("validation", SimpleNamespace(enable=True)))
refused("validation is on", trainer(job_config=None, config=SimpleNamespace(validator=SimpleNamespace(enable=True))))
refused("its checkpointer is on", trainer(checkpointer=SimpleNamespace(enable=True)))
refused("profiling is on", setting("profiling", SimpleNamespace(enable_profiling=True)))
refused("profiling is on", trainer(job_config=None, config=SimpleNamespace(profiler=SimpleNamespace(enable_memory_snapshot=True))))
scales = SimpleNamespace(precompute_float8_dynamic_scale_for_fsdp=True)
refused("precompute_float8_dynamic_scale_for_fsdp", setting("quantize", SimpleNamespace(linear=SimpleNamespace(float8=scales))))
refused("its step is 3", trainer(step=3))
refused("its dataloader (list) has no state_dict", trainer(dataloader=[]))
refused("OptimizersInBackwardContainer updates in the backward pass", trainer(optimizers=OptimizersInBackwardContainer()))
def converted(*_):
    pass


hooked = trainer()
converted.__module__ = "torchtitan.train"
hooked.optimizers.register_step_post_hook(converted)
refused("register", hooked, AttributeError)
hooked.optimizers.register_step_post_hook(print)
refused("ManyOptimizers has step_post_hooks", hooked)
refused("under replicate()", trainer(model_parts=[torch.nn.Sequential(replicate(torch.nn.Linear(2, 2)))]))
