"""The loader's workers change samples by random numbers that depend on the worker, and start anew."""
from base import BATCH, Data, Training, torch


class Noisy(Data):
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x + 0.1 * torch.randn(x.shape), y


class Script(Training):
    def build(self):
        super().build()
        self.data = Noisy()

    def loader(self, epoch, skip):
        return torch.utils.data.DataLoader(self.data, BATCH, sampler=self.order(epoch)[skip * BATCH:], num_workers=1,
                                           generator=torch.Generator().manual_seed(epoch))


Script().main()
