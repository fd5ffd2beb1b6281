"""Gradients are scaled by hand, by a factor that is not saved."""
from base import Training


class Script(Training):
    factor = 1.0

    def gradients(self):
        for parameter in self.model.parameters():
            parameter.grad.mul_(self.factor)
        self.factor *= 0.95


Script().main()
