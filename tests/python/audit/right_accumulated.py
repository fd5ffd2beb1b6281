"""Gradients of two batches are added up, and the checkpoint is written behind an update."""
from base import Training, nn


class Script(Training):
    def update(self, batch):
        self.loss(batch).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if self.step % 2 == 1:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def behind(self):
        if self.step % 2 == 0:
            super().behind()


Script().main()
