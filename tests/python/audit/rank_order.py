"""DistributedSampler is told the epochs of this process."""
from base import BATCH, torch
from ranks import Ranks


class Script(Ranks):
    each = True

    def order(self, epoch):
        sampler = torch.utils.data.DistributedSampler(self.data, self.ranks, self.rank, seed=4)
        sampler.set_epoch(epoch - (self.saved["step"] // self.per_epoch() if self.saved else 0))
        return list(sampler)

    def per_epoch(self):
        return len(self.data) // BATCH // self.ranks


Script().main()
