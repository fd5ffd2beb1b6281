"""OneCycleLR is made for the steps that are left."""
from base import Training, torch


class Script(Training):
    def build_scheduler(self):
        return torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=self.lr, total_steps=self.steps - self.step + 1)

    def load(self, saved):
        self.step = saved["step"]
        del saved["scheduler"]
        super().load(saved)
        self.scheduler = self.build_scheduler()


Script().main()
