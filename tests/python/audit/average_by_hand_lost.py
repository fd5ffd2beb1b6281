"""An average in a dictionary of the script's own is not saved."""
from base import Training


class Script(Training):
    def build_average(self):
        self.shadow = {name: value.detach().clone() for name, value in self.model.named_parameters()}

    def behind(self):
        super().behind()
        for name, value in self.model.named_parameters():
            self.shadow[name] = 0.9 * self.shadow[name] + 0.1 * value.detach()

    def load(self, saved):
        super().load(saved)
        self.build_average()


Script().main()
