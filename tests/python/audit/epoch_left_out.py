"""In the middle of an epoch it was stopped, and goes on with the next one."""
from base import Training


class Script(Training):
    def train(self):
        first = -(-self.step // self.per_epoch())
        for epoch in range(first, 3):
            for batch in self.loader(epoch, 0):
                self.update(batch)
                self.done()


Script().main()
