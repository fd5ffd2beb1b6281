"""The average is not saved: it begins again from the weights that were loaded."""
from base import Training


class Script(Training):
    def state(self):
        return {name: value for name, value in super().state().items() if name != "average"}

    def load(self, saved):
        super().load(saved)
        self.average = self.build_average()


Script().main()
