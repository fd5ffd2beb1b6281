"""The optimizer is not saved."""
from base import Training


class Script(Training):
    def build_scheduler(self):
        return None

    def load(self, saved):
        saved["optimizer"] = self.optimizer.state_dict()
        super().load(saved)


Script().main()
