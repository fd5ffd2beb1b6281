"""Checkpoints at the ends of epochs, each of which is shuffled by a seed of its own; torch's loader draws what it will."""
from base import BATCH, Training, nn, torch


class Script(Training):
    save_every = 10

    def build_model(self):
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))

    def state(self):
        return {name: value for name, value in super().state().items() if name not in ("torch", "numpy", "python")}

    def loader(self, epoch, skip):
        return torch.utils.data.DataLoader(self.data, BATCH, sampler=self.order(epoch))

    def train(self):
        for epoch in range(self.step // self.per_epoch(), 3):
            for batch in self.loader(epoch, 0):
                self.update(batch)
                self.done()
            self.model.eval()
            for batch in torch.utils.data.DataLoader(self.data, 8):
                with torch.no_grad():
                    self.loss(batch)
            self.model.train()


Script().main()
