"""Mistakes with kintsugi.torch get a sentence. Needs no run: an agent that joined nothing stands in where one is asked for."""
import torch

import kintsugi
from kintsugi.torch import _build, state


def refused(words, function, *arguments):
    try:
        function(*arguments)
    except kintsugi.Error as error:
        assert words in str(error), f"'{words}' is not in '{error}'"
        return
    raise AssertionError(f"not refused: {words}")


class Elsewhere(torch.optim.SGD):
    pass


refused("meta device", state.check, "w", torch.empty(2, device="meta"))
refused("is sparse", state.check, "w", torch.zeros(2, 2).to_sparse())
parameter = torch.nn.Parameter(torch.ones(2))
refused("belongs to no model", state.materialise, torch.optim.SGD([parameter], lr=1.0), {})

optimizer = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.5)
state.materialise(optimizer, {parameter: "p"})
assert parameter.tolist() == [1.0, 1.0], parameter
held = optimizer.state[parameter]
assert held["step"].item() == 0 and held["exp_avg"].tolist() == [0.0, 0.0], held
assert optimizer.param_groups[0]["lr"] == 0.1

schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
refused("ReduceLROnPlateau", state.Schedule, schedule)

# Steps behind the gate are learnt and done again.
rates = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
kept = state.Schedule(rates)
settings = state.OptimizerGroups(optimizer)
kept.begin_step()
at_gate = kept.state_dict(), settings.state_dict()
kept.note_gate()
rates.step()
after = optimizer.param_groups[0]["lr"]
rates.step()
settings.load_state_dict(at_gate[1])
kept.load_state_dict(at_gate[0])
assert optimizer.param_groups[0]["lr"] == after, (optimizer.param_groups[0]["lr"], after)

version = torch.__version__
torch.__version__ = "1.13.1"
refused("torch 1.13.1 is not supported", _build.load)
torch.__version__ = version
print("ok")
