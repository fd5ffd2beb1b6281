"""The checkpoint is written before the schedule's step, and the step is not made again."""
from base import Training


class Script(Training):
    def done(self):
        self.step += 1
        self.average.update_parameters(self.model)
        if self.step % self.save_every == 0:
            self.save()
        self.scheduler.step()


Script().main()
