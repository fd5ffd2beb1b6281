"""The weights are saved in half precision."""
from base import Training


class Script(Training):
    def state(self):
        return {**super().state(), "model": {name: value.bfloat16() if value.is_floating_point() else value for name, value in self.model.state_dict().items()}}


Script().main()
