"""The model that was loaded is tried first, and stays in evaluation mode."""
from base import Training


class Script(Training):
    def load(self, saved):
        super().load(saved)
        self.model.eval()


Script().main()
