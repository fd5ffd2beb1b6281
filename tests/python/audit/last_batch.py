"""The loader of a resumed run drops the last batch, which is smaller."""
from base import BATCH, Data, Training, nn, torch


class Script(Training):
    def build(self):
        super().build()
        self.data = Data(42)

    def build_model(self):
        return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.25), nn.Linear(8, 1))

    def loader(self, epoch, skip):
        return torch.utils.data.DataLoader(self.data, BATCH, sampler=self.order(epoch)[skip * BATCH:], drop_last=self.saved is not None, generator=torch.Generator())

    def train(self):
        for epoch in range(self.step // self.per_epoch(), 4):
            for batch in self.loader(epoch, self.step % self.per_epoch() if self.saved and epoch == self.saved["step"] // self.per_epoch() else 0):
                if self.step < self.steps:
                    self.update(batch)
                    self.done()


Script().main()
