"""The option that should resume it does nothing."""
from base import Training


class Script(Training):
    def read(self):
        return self.state()


Script().main()
