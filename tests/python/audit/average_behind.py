"""The checkpoint is written before the average takes the new weights, and they are not taken again."""
from base import Training


class Script(Training):
    def done(self):
        self.step += 1
        self.scheduler.step()
        if self.step % self.save_every == 0:
            self.save()
        self.average.update_parameters(self.model)


Script().main()
