"""Of two optimizers one is saved."""
from base import FEATURES, Training, nn, torch


class Script(Training):
    def build_model(self):
        self.second = nn.Linear(FEATURES, 1)
        return super().build_model()

    def build_optimizer(self):
        self.second_optimizer = torch.optim.Adam(self.second.parameters(), lr=0.01)
        return super().build_optimizer()

    def update(self, batch):
        super().update(batch)
        self.second_optimizer.zero_grad()
        nn.functional.mse_loss(self.second(batch[0]), self.model(batch[0]).detach()).backward()
        self.second_optimizer.step()

    def state(self):
        return {**super().state(), "second": self.second.state_dict()}

    def load(self, saved):
        super().load(saved)
        self.second.load_state_dict(saved["second"])


Script().main()
