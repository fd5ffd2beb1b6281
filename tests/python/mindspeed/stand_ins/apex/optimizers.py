"""Stands for apex's fused optimizers (on NPU: MindSpeed's): AdamW whose step counter is the group's, as Megatron expects."""
import torch

inside_update = []  # called in the middle of each update: the tests' faults
made = []  # every optimizer of this process, for the tests to look at


class FusedAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, **_):
        super().__init__(params, {"lr": lr, "bias_correction": True, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        made.append(self)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            first, second = group["betas"]
            size = group["lr"] / (1 - first ** group["step"])
            scale = (1 - second ** group["step"]) ** 0.5
            for number, param in enumerate(group["params"]):
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(param), torch.zeros_like(param)
                param.mul_(1 - group["lr"] * group["weight_decay"])
                state["exp_avg"].mul_(first).add_(param.grad, alpha=1 - first)
                state["exp_avg_sq"].mul_(second).addcmul_(param.grad, param.grad, value=1 - second)
                param.addcdiv_(state["exp_avg"], (state["exp_avg_sq"].sqrt() / scale).add_(group["eps"]), value=-size)
                if number == 0:
                    for call in inside_update:
                        call()


class FusedSGD(torch.optim.SGD):
    pass
