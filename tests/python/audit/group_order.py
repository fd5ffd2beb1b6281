"""The groups are made in another order: each has the other's weight decay and moments."""
from base import Training, nn, sys, torch


class Script(Training):
    def build_model(self):
        return nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False), nn.Dropout(0.25), nn.Linear(6, 1, bias=False))

    def build_optimizer(self):
        groups = [{"params": [self.model[0].weight], "weight_decay": 0.1}, {"params": [self.model[1].weight], "weight_decay": 0.0}]
        if "--resume" in sys.argv:
            groups.reverse()
        return torch.optim.AdamW([*groups, {"params": [self.model[3].weight]}], lr=self.lr)


Script().main()
