"""The schedule is not saved: it begins anew."""
from base import Training


class Script(Training):
    def state(self):
        return {name: value for name, value in super().state().items() if name != "scheduler"}


Script().main()
