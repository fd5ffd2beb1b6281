"""How a registered object becomes bytes.

Ranks compare them: what all have alike one can be given by another. So equal values must give equal bytes, wherever they lie in memory; kinds
that pickle otherwise have a reducer here.

Threads: none; pure. Errors: Error for what cannot be pickled.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

from ._errors import Error
from .abi import Code
from .terms import Codec, Encoder
from .values import Values

Reducer = Callable[[Any], Any]  # as copyreg has them, of exactly this type


class Pickling:
    def __init__(self, reducers: Mapping[type, Reducer]) -> None:
        self._reducers = ChainMap(dict(reducers), copyreg.dispatch_table)

    def bytes_of(self, key: str, thing: Codec | Values) -> bytes:
        try:
            return thing.encode() if isinstance(thing, Encoder) else self.dumps(thing.state_dict())
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise Error(f"object '{key}' ({type(thing).__name__}) cannot be pickled: {error}", Code.INVALID_ARGUMENT) from error

    def dumps(self, state: Any) -> bytes:
        written = io.BytesIO()
        pickler = pickle.Pickler(written, protocol=pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = self._reducers
        pickler.dump(state)
        return written.getvalue()
