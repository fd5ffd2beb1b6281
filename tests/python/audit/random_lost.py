"""No random numbers are saved: dropout draws others."""
from base import Training


class Script(Training):
    def state(self):
        return {name: value for name, value in super().state().items() if name not in ("torch", "numpy", "python")}


Script().main()
