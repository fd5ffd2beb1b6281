"""An average by hand, a warm-up by the number of the step, a frozen layer, tied weights: all as before."""
from base import Training, nn


class Script(Training):
    def build_model(self):
        first, second = nn.Linear(6, 6), nn.Linear(6, 6)
        second.weight = first.weight
        frozen = nn.Linear(6, 6)
        frozen.weight.requires_grad_(False)
        return nn.Sequential(frozen, first, nn.Tanh(), second, nn.Dropout(0.2), nn.Linear(6, 1))

    def build_scheduler(self):
        return None

    def build_average(self):
        self.shadow = {name: value.detach().clone() for name, value in self.model.named_parameters()}

    def update(self, batch):
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * min(1.0, (self.step + 1) / 9)
        super().update(batch)

    def behind(self):
        for name, value in self.model.named_parameters():
            self.shadow[name] = 0.9 * self.shadow[name] + 0.1 * value.detach()

    def state(self):
        return {**super().state(), "shadow": self.shadow}

    def load(self, saved):
        super().load(saved)
        self.shadow = saved["shadow"]


Script().main()
