"""A loss scale that grows, saved; updates that overflow are left out."""
from base import Training, torch


class Script(Training):
    def build_scaler(self):
        return torch.amp.GradScaler("cpu", init_scale=2.0 ** 12, growth_interval=4)


Script().main()
