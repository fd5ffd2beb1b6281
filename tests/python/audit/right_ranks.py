"""Two ranks, each with its own random numbers saved."""
from ranks import Ranks


class Script(Ranks):
    each = True


Script().main()
