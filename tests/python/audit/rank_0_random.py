"""All ranks put back the random numbers of rank 0."""
from ranks import Ranks

Ranks().main()
