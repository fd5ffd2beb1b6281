"""Learning from a buffer of what was seen, beside a network that is set to the trained one every five steps."""
import copy
import random
import sys

import torch
from torch import nn


def main(with_buffer):
    torch.manual_seed(0)
    random.seed(0)
    model, buffer, step = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)), [], 0
    target = copy.deepcopy(model)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    if "--resume" in sys.argv:
        saved = torch.load("last.pt", weights_only=False)
        model.load_state_dict(saved["model"])
        target.load_state_dict(saved["target"])
        optimizer.load_state_dict(saved["optimizer"])
        step, buffer = saved["step"], saved["buffer"] if with_buffer else []
        random.setstate(saved["python"])
        torch.set_rng_state(saved["torch"])
    while step < 24:
        if step % 6 == 0 and step > 0:
            torch.save({"model": model.state_dict(), "target": target.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "buffer": buffer,
                        "python": random.getstate(), "torch": torch.get_rng_state()}, "last.pt")
        state = torch.randn(4)
        with torch.no_grad():
            buffer.append((state, int(model(state).argmax()), state.sum(), torch.randn(4)))
        states, actions, rewards, later = zip(*random.sample(buffer, min(4, len(buffer))))
        with torch.no_grad():
            wanted = torch.stack(rewards) + 0.9 * target(torch.stack(later)).max(1)[0]
        found = model(torch.stack(states)).gather(1, torch.tensor(actions)[:, None])[:, 0]
        optimizer.zero_grad()
        nn.functional.mse_loss(found, wanted).backward()
        optimizer.step()
        step += 1
        if step % 5 == 0:
            target.load_state_dict(model.state_dict())
