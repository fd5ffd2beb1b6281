"""Proximal policy optimisation: rollouts of an environment, then some epochs over their minibatches, until the policy has moved too far."""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributions import Categorical

import facts

folder = Path(sys.argv[1])
num_iterations, num_steps, num_envs, update_epochs, num_minibatches = 4, 8, 4, 3, 2
gamma, gae_lambda, clip_coef, ent_coef, vf_coef, target_kl = 0.97, 0.9, 0.2, 0.01, 0.5, 0.004


class Walk:
    """Many walkers on a line, drawn to the middle; left alone they drift."""

    def __init__(self, count, seed):
        self.random = np.random.default_rng(seed)
        self.places = self.random.normal(size=(count, 2)).astype(np.float32)

    def step(self, actions):
        self.places += self.random.normal(scale=0.1, size=self.places.shape).astype(np.float32)
        self.places[:, 0] += (actions.numpy() - 1) * 0.3
        done = np.abs(self.places[:, 0]) > 3
        self.places[done] = 0
        return torch.from_numpy(self.places.copy()), torch.from_numpy(-np.abs(self.places[:, 0])), torch.from_numpy(done.astype(np.float32))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        self.actor = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3))

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(x).flatten()


torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(9)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3, eps=1e-5)
torch.manual_seed(90 + rank)
rng = np.random.default_rng(900 + rank)
envs = Walk(num_envs, rank)
next_obs, next_done = torch.from_numpy(envs.places.copy()), torch.zeros(num_envs)
global_step = 0
updates = 0


def log(line):
    if rank == 0:
        with open(folder / "log.txt", "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


@torch.no_grad()
def collect():
    global next_obs, next_done, global_step
    rows = []
    for _ in range(num_steps):
        global_step += num_envs * dist.get_world_size()
        obs, before = next_obs, next_done
        action, logprob, _, value = agent.get_action_and_value(obs)
        next_obs, reward, next_done = envs.step(action)
        rows.append((obs, action, logprob, value, reward, before))
    obs, actions, logprobs, values, rewards, dones = map(torch.stack, zip(*rows))
    advantages, last = torch.zeros_like(rewards), torch.zeros(num_envs)
    following, alive = agent.critic(next_obs).flatten(), 1.0 - next_done
    for t in reversed(range(num_steps)):
        delta = rewards[t] + gamma * following * alive - values[t]
        advantages[t] = last = delta + gamma * gae_lambda * alive * last
        following, alive = values[t], 1.0 - dones[t]
    return [part.flatten(0, 1) for part in (obs, actions, logprobs, advantages, advantages + values)]


def average_gradients():
    grads = torch.cat([p.grad.flatten() for p in agent.parameters()])
    dist.all_reduce(grads)
    offset = 0
    for p in agent.parameters():
        p.grad.copy_(grads[offset : offset + p.numel()].view_as(p.grad) / dist.get_world_size())
        offset += p.numel()


for iteration in range(1, num_iterations + 1):
    optimizer.param_groups[0]["lr"] = (1.0 - (iteration - 1.0) / num_iterations) * 5e-3
    b_obs, b_actions, b_logprobs, b_advantages, b_returns = collect()
    b_inds = np.arange(len(b_obs))
    for epoch in range(update_epochs):
        rng.shuffle(b_inds)
        for mb_inds in np.array_split(b_inds, num_minibatches):
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions[mb_inds])
            logratio = newlogprob - b_logprobs[mb_inds]
            ratio = logratio.exp()
            approx_kl = ((ratio - 1) - logratio).mean().detach()
            advantages = (b_advantages[mb_inds] - b_advantages[mb_inds].mean()) / (b_advantages[mb_inds].std() + 1e-8)
            pg_loss = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - clip_coef, 1 + clip_coef)).mean()
            loss = pg_loss - ent_coef * entropy.mean() + vf_coef * 0.5 * (newvalue - b_returns[mb_inds]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            average_gradients()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            dist.all_reduce(approx_kl)
            updates += 1
            optimizer.step()
        if approx_kl / dist.get_world_size() > target_kl:
            break
    log(f"iteration-{iteration} kl {approx_kl.item()} updates {updates} steps {global_step} return {b_returns.mean().item()}")

dist.barrier()
facts.write(folder, rank, agent=agent.state_dict(), optimizer=optimizer.state_dict(), log=facts.newest(folder / "log.txt"),
            last=[updates, global_step, torch.rand(1), rng.random(), next_obs, b_obs])
dist.destroy_process_group()
