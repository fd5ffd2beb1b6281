"""SGD's momentum is left out of the checkpoint to make it smaller."""
from base import Training, copy, torch


class Script(Training):
    def build_optimizer(self):
        return torch.optim.SGD(self.model.parameters(), lr=self.lr, momentum=0.9)

    def state(self):
        state = copy.deepcopy(super().state())
        for of in state["optimizer"]["state"].values():
            of["momentum_buffer"] = None
        return state


Script().main()
