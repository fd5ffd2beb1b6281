"""Weights that are no module's."""
from base import FEATURES, Training, nn, torch


class Script(Training):
    def build_model(self):
        self.w = nn.Parameter(torch.zeros(FEATURES, 1))
        return None

    def build_optimizer(self):
        return torch.optim.SGD([self.w], lr=self.lr, momentum=0.9)

    def build_average(self):
        return None

    def loss(self, batch):
        return nn.functional.mse_loss(batch[0] @ self.w, batch[1])

    def state(self):
        return {"step": self.step, "w": self.w.detach(), "optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict()}

    def load(self, saved):
        self.w.data.copy_(saved["w"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scheduler.load_state_dict(saved["scheduler"])
        self.step = saved["step"]


Script().main()
