"""In the middle of an epoch it was stopped, and begins that epoch anew."""
from base import Training


class Script(Training):
    def train(self):
        for epoch in range(self.step // self.per_epoch(), 3):
            for batch in self.loader(epoch, 0):
                self.update(batch)
                self.done()


Script().main()
