"""FSDP2 over two ranks, saved by torch.distributed.checkpoint."""
import torch
import torch.distributed.checkpoint as dcp
from ranks import Ranks
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


class Script(Ranks):
    each = True

    def build_model(self):
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2), torch.nn.Dropout(0.2), torch.nn.Linear(2, 1))
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (self.ranks,))
        for layer in (model[0], model[2], model):
            torch.distributed.fsdp.fully_shard(layer, mesh=mesh)
        return model

    def save(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        dcp.save({"model": model, "optimizer": optimizer, "step": torch.tensor(self.step), "scheduler": self.scheduler.state_dict()}, checkpoint_id="saved")
        torch.save(torch.get_rng_state(), f"random-{self.rank}.pt")

    def read(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        state = {"model": model, "optimizer": optimizer, "step": torch.tensor(0), "scheduler": self.scheduler.state_dict()}
        dcp.load(state, checkpoint_id="saved")
        return state

    def load(self, saved):
        set_state_dict(self.model, self.optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
        self.scheduler.load_state_dict(saved["scheduler"])
        self.step = int(saved["step"])

    def load_random(self, saved):
        torch.set_rng_state(torch.load(f"random-{self.rank}.pt"))

    def seed_again(self):
        pass


Script().main()
