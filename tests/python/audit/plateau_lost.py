"""ReduceLROnPlateau forgets how long the loss has not become better: it waits longer before it lowers the rate."""
from base import Training, torch


class Script(Training):
    def build_scheduler(self):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, patience=6, factor=0.5)

    def behind(self):
        self.scheduler.step(1.0)
        self.average.update_parameters(self.model)

    def state(self):
        return {name: value for name, value in super().state().items() if name != "scheduler"}


Script().main()
