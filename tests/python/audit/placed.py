"""The checkpoint's place is an argument."""
from base import Training, sys


class Script(Training):
    path = next(word.partition("=")[2] for word in sys.argv if word.startswith("--place="))


Script().main()
