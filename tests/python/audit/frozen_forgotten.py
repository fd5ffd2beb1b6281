"""A layer is frozen when training begins, and not when it goes on."""
from base import Training, sys


class Script(Training):
    def build_optimizer(self):
        if "--resume" not in sys.argv:
            self.model[0].weight.requires_grad_(False)
        return super().build_optimizer()


Script().main()
