"""The native library, also importable as the top-level name `ttp_c2python_api`: Kintsugi's."""

from kintsugi import _core

__all__ = ["_core"]
