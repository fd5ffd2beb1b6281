"""After the load the rate of the command line is set once more."""
from base import Training


class Script(Training):
    def build_scheduler(self):
        return None

    def behind(self):
        super().behind()
        for group in self.optimizer.param_groups:
            group["lr"] *= 0.97

    def load(self, saved):
        super().load(saved)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr


Script().main()
