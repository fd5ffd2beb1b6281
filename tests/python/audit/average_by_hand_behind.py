"""An average of a list of tensors is updated in place, behind the checkpoint that has it."""
from base import Training, torch


class Script(Training):
    def build_average(self):
        self.shadow = [value.detach().clone() for value in self.model.parameters()]

    def state(self):
        return {**super().state(), "shadow": self.shadow}

    def load(self, saved):
        super().load(saved)
        self.shadow = [value.clone() for value in saved["shadow"]]

    def done(self):
        self.step += 1
        self.scheduler.step()
        if self.step % self.save_every == 0:
            self.save()
        torch._foreach_mul_(self.shadow, 0.9)
        torch._foreach_add_(self.shadow, [value.detach() for value in self.model.parameters()], alpha=0.1)


Script().main()
