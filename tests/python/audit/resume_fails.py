"""The resume looks for its checkpoint elsewhere."""
from base import Training


class Script(Training):
    def read(self):
        raise FileNotFoundError("no such checkpoint: saved/last.pt")


Script().main()
