"""The loop goes on behind the number that was saved, which is that of the next step already."""
from base import Training


class Script(Training):
    def load(self, saved):
        super().load(saved)
        self.step = saved["step"] + 1


Script().main()
