"""Two models and two optimizers, both saved."""
from base import FEATURES, Training, nn, torch


class Script(Training):
    def build(self):
        self.second = nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, 1))
        self.second_optimizer = torch.optim.Adam(self.second.parameters(), lr=0.01)
        super().build()

    def update(self, batch):
        self.second_optimizer.zero_grad()
        (self.second(batch[0]) - self.model(batch[0]).detach()).square().mean().backward()
        self.second_optimizer.step()
        super().update(batch)

    def state(self):
        return {**super().state(), "second": self.second.state_dict(), "second_optimizer": self.second_optimizer.state_dict()}

    def load(self, saved):
        super().load(saved)
        self.second.load_state_dict(saved["second"])
        self.second_optimizer.load_state_dict(saved["second_optimizer"])


Script().main()
