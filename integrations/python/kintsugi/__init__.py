"""Kintsugi: training that survives. `import kintsugi` needs no torch; `kintsugi.torch` is torch's door.

    run = kintsugi.join()
    weights = run.register("weights", numpy.zeros(8))
    run.train(step, steps=1000)
"""

from ._core import version
from ._errors import Error, InjectedFault, Interrupted
from .cuts import Cut, Part, cut
from .experts import global_expert_key
from .reshard import Resharded, Shard
from .run import Run, join
from .take_over import TakeOver
from .terms import Codec, Guarded, Incident, Piece
from .values import NamedValues, Value

__version__ = version()
__all__ = ["Codec", "Cut", "Error", "Guarded", "Incident", "InjectedFault", "Interrupted", "NamedValues", "Part", "Piece", "Resharded", "Run", "Shard", "TakeOver", "Value", "cut",
           "global_expert_key", "join", "version"]  # fmt: skip
