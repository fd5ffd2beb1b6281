"""The moments are saved in half precision."""
from base import Training, copy


class Script(Training):
    def state(self):
        state = copy.deepcopy(super().state())
        for of in state["optimizer"]["state"].values():
            of["exp_avg_sq"] = of["exp_avg_sq"].bfloat16()
        return state


Script().main()
