"""The optimizer is not saved, and so is the rate that the schedule had given it."""
from base import Training


class Script(Training):
    def load(self, saved):
        saved["optimizer"] = self.optimizer.state_dict()
        super().load(saved)


Script().main()
