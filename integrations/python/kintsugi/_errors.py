"""What goes wrong, as exceptions."""

from __future__ import annotations

from .abi import Code


class Error(RuntimeError):
    """A call was refused or failed; `code` is the C ABI's (kintsugi.h), the text says what to do."""

    def __init__(self, text: str, code: int = Code.INTERNAL) -> None:
        super().__init__(text)
        self.code = int(code)


class Interrupted(BaseException):
    """An incident has begun: let it out of the loop, the guard does the rest.

    Not an Exception, so that a trainer's `except Exception` does not swallow it.
    """


class InjectedFault(RuntimeError):
    """An exception that `--inject throw` asked for."""
