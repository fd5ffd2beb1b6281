"""A generator of the script's own, numpy's and Python's random numbers: all saved."""
from base import Training, numpy, random, torch


class Script(Training):
    def build(self):
        super().build()
        self.generator = torch.Generator().manual_seed(5)

    def loss(self, batch):
        kept = (torch.rand(batch[1].shape, generator=self.generator) > 0.3).float() * random.uniform(0.5, 1)
        noise = torch.from_numpy(numpy.random.normal(size=tuple(batch[0].shape)).astype("float32"))
        return (kept * (self.model(batch[0] + 0.1 * noise) - batch[1]) ** 2).mean()

    def state(self):
        return {**super().state(), "generator": self.generator.get_state()}

    def load(self, saved):
        super().load(saved)
        self.generator.set_state(saved["generator"])


Script().main()
