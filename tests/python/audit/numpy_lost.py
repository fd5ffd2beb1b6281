"""numpy's random numbers are not saved, and samples are changed by them."""
from base import Training, numpy, torch


class Script(Training):
    def update(self, batch):
        noise = torch.from_numpy(numpy.random.normal(size=tuple(batch[0].shape)).astype("float32"))
        super().update((batch[0] + 0.1 * noise, batch[1]))

    def load_random(self, saved):
        torch.set_rng_state(saved["torch"])


Script().main()
