"""Weights that were one tensor are two after the load."""
from base import Training, nn, torch


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.head = nn.Linear(6, 1)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(self.second(torch.tanh(self.first(torch.tanh(self.inner(x))))))


class Script(Training):
    def build_model(self):
        return Tied()

    def build_average(self):
        return None

    def build_optimizer(self):
        return torch.optim.SGD(self.model.parameters(), lr=self.lr)

    def load(self, saved):
        self.model.second.weight = nn.Parameter(saved["model"]["second.weight"].clone())
        self.optimizer = self.build_optimizer()
        self.scheduler = self.build_scheduler()
        saved["optimizer"] = self.optimizer.state_dict() | {"param_groups": [saved["optimizer"]["param_groups"][0] | {"params": list(range(8))}]}
        super().load(saved)


Script().main()
