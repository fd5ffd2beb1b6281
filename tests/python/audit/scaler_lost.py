"""The loss scale begins anew."""
from base import Training, torch


class Script(Training):
    def build_scaler(self):
        return torch.amp.GradScaler("cpu", init_scale=2.0 ** 12, growth_interval=4)

    def state(self):
        return {name: value for name, value in super().state().items() if name != "scaler"}


Script().main()
