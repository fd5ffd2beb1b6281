"""Parameters are saved, and the running statistics of BatchNorm are not."""
from base import Training


class Script(Training):
    def build_average(self):
        return None

    def state(self):
        return {**super().state(), "model": dict(self.model.named_parameters())}

    def load(self, saved):
        saved["model"] = {**self.model.state_dict(), **saved["model"]}
        super().load(saved)


Script().main()
