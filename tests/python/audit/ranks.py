"""The training over several ranks, by DistributedDataParallel over Gloo. `each`: each rank saves its own random numbers."""
import torch
from base import BATCH, Training


class Ranks(Training):
    each = False

    def build(self):
        torch.distributed.init_process_group("gloo")
        self.rank, self.ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        super().build()
        torch.manual_seed(50 + self.rank)

    def build_average(self):
        return None

    def build_model(self):
        return torch.nn.parallel.DistributedDataParallel(super().build_model())

    def per_epoch(self):
        return len(self.data) // BATCH // self.ranks

    def order(self, epoch):
        return super().order(epoch)[self.rank::self.ranks]

    def save(self):
        if self.each:
            torch.save(torch.get_rng_state(), f"random-{self.rank}.pt")
        if self.rank == 0:
            torch.save(self.state(), self.path)
        torch.distributed.barrier()

    def load_random(self, saved):
        super().load_random(saved)
        if self.each:
            torch.set_rng_state(torch.load(f"random-{self.rank}.pt"))

    def main(self):
        super().main()
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
