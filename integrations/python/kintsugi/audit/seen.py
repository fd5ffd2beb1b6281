"""What a program has made, as its constructors were called: modules, optimizers, schedules, scalers, generators, loaders. Only weak
references: nothing lives longer because it is looked at.

Threads: constructors may run on any; the lists are read on the thread that trains. Numbers are given in the order of making, which is
the same in two runs of one program.
"""

from __future__ import annotations

import weakref
from typing import Any, Iterator


class Made:
    """The live objects of one kind, in the order in which they were made."""

    def __init__(self) -> None:
        self._references: list[weakref.ref[Any]] = []

    def add(self, thing: Any) -> None:
        if not any(reference() is thing for reference in self._references[-64:]):  # a constructor that calls its base's
            self._references.append(weakref.ref(thing))

    def __iter__(self) -> Iterator[Any]:
        self._references = [reference for reference in self._references if reference() is not None]
        for reference in list(self._references):
            thing = reference()
            if thing is not None:
                yield thing


class Names:
    """The names of all parameters and buffers at one moment, as users know them: those of the outermost module, without what wrappers
    put before them. Those of other outermost modules begin with the class, and its number where there are several."""

    WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")

    def __init__(self, modules: list[Any]) -> None:
        inner = {id(child) for module in modules for child in module._modules.values() if child is not None}
        self.roots = [module for module in modules if id(module) not in inner and _has_tensors(module)]
        self.of: dict[int, str] = {}
        self.parameters: list[tuple[str, Any, Any]] = []  # (name, tensor, the outermost module)
        self.buffers: list[tuple[str, Any, Any]] = []
        self.ties: list[list[str]] = []
        of_class: dict[str, int] = {}
        for number, root in enumerate(self.roots):
            kind = type(root).__name__
            of_class[kind] = of_class.get(kind, 0) + 1
            self._add(root, "" if number == 0 else f"{kind}." if of_class[kind] == 1 else f"{kind}{of_class[kind]}.")

    def _add(self, root: Any, before: str) -> None:
        shared: dict[int, list[str]] = {}
        for name, parameter in root.named_parameters(remove_duplicate=False):
            told = before + self._plain(name)
            shared.setdefault(id(parameter), []).append(told)
            if id(parameter) not in self.of:
                self.of[id(parameter)] = told
                self.parameters.append((told, parameter, root))
        self.ties += [sorted(names) for names in shared.values() if len(names) > 1]
        for name, buffer in root.named_buffers():
            self.of[id(buffer)] = before + self._plain(name)
            self.buffers.append((before + self._plain(name), buffer, root))

    def _plain(self, name: str) -> str:
        for wrapper in self.WRAPPERS:
            name = name.replace(wrapper, "")
        return name


def _has_tensors(module: Any) -> bool:
    return any(True for _ in module.parameters()) or any(True for _ in module.buffers())


class Seen:
    """Everything that was made."""

    def __init__(self) -> None:
        self.modules = Made()
        self.optimizers = Made()
        self.schedules = Made()
        self.scalers = Made()
        self.generators = Made()

    def named_generators(self) -> dict[str, Any]:
        return {f"generator {i}": generator for i, generator in enumerate(self.generators)}
