"""SIGTERM sets a flag; the loop then ends its step, saves and leaves. The checkpoint before is long ago."""
import signal

from base import Training, sys


class Script(Training):
    save_every = 7
    asked = False

    def ask(self, *_):
        self.asked = True

    def done(self):
        super().done()
        if self.asked:
            self.save()
            sys.exit(3)

    def main(self):
        signal.signal(signal.SIGTERM, self.ask)
        super().main()


Script().main()
