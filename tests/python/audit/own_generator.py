"""A mask is drawn from a generator of the script's own, which is not saved."""
from base import Training, torch


class Script(Training):
    def build(self):
        super().build()
        self.generator = torch.Generator().manual_seed(5)

    def loss(self, batch):
        kept = (torch.rand(batch[1].shape, generator=self.generator) > 0.3).float()
        return (kept * (self.model(batch[0]) - batch[1]) ** 2).mean()


Script().main()
