"""The model's parameters are replaced after the optimizer was made with the old ones."""
from base import Training


class Script(Training):
    def load(self, saved):
        super().load(saved)
        self.model.load_state_dict(saved["model"], assign=True)


Script().main()
