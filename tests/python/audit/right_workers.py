"""The loader's workers change each sample by random numbers of its own and of the epoch."""
from base import BATCH, Data, Training, torch


class Noisy(Data):
    epoch = 0

    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1000 * self.epoch + i)), y


class Script(Training):
    def build(self):
        super().build()
        self.data = Noisy()

    def loader(self, epoch, skip):
        self.data.epoch = epoch
        return torch.utils.data.DataLoader(self.data, BATCH, sampler=self.order(epoch)[skip * BATCH:], num_workers=2, generator=torch.Generator())


Script().main()
