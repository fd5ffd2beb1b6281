"""The optimizer is loaded before the schedule is made, whose constructor sets the rate of the start; its load does not."""
from base import Training, torch


class Script(Training):
    def build_scheduler(self):
        return torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)

    def load(self, saved):
        super().load(saved)
        self.optimizer.param_groups[0].pop("initial_lr")
        self.optimizer.param_groups[0]["lr"] = self.lr
        self.scheduler = self.build_scheduler()
        self.scheduler.load_state_dict(saved["scheduler"])


Script().main()
