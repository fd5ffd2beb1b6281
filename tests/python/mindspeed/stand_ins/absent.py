"""What MindSpeed and MindSpeed-LLM import at their tops and a tiny GPT on the CPU never calls: kernels, tokenizers, data frames.

A name of it can be looked up, subclassed, used as a decorator, put into an annotation and called while a module is imported; a later call
is an error.
"""
import importlib.abc
import importlib.machinery
import sys
import types

# Asked for at the tops of Megatron's own modules.
_OF_MEGATRON = ("six", "yaml", "regex", "PIL", "nltk")
# What is looked for in order to be used where it is there: it is not.
_PROBED = ("flash_attn", "mindio_acp", "mindspore", "amp_C", "apex", "torch", "numpy", "mindspeed", "mindspeed_llm")
# MindSpeed's own kernels, which are built for the NPU when they are imported.
_KERNELS = ("mindspeed.ops", "mindspeed.op_builder")


class Absent:
    """A name whose content is not here."""

    def __init__(self, name):
        self.__name__ = self.__qualname__ = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")

    def __mro_entries__(self, _bases):
        return (object,)

    def __or__(self, other):
        return other

    __ror__ = __or__

    def __getitem__(self, _key):
        return self

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]  # a decorator
        if not args or kwargs or sys._getframe(1).f_code.co_name == "<module>":
            return self  # a decorator with options, or something that is set up while a module is imported
        raise RuntimeError(f"{self.__name__} is not here: a stand-in of the test's was called")


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


def _importers():
    """Modules that stand in an import now, the innermost first."""
    found, frame = [], sys._getframe(2)
    while frame is not None:
        if "importlib" not in frame.f_code.co_filename:
            found.append(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return found


class Kernels(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes first: these are there, and cannot be loaded."""

    def find_spec(self, name, _path=None, _target=None):
        if not any(name == kernels or name.startswith(kernels + ".") for kernels in _KERNELS):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        module.__version__ = "2.2.0"


class Packages(Kernels):
    """Comes last: what is installed is taken. Asked by others than MindSpeed and Megatron it knows nothing."""

    def find_spec(self, name, _path=None, _target=None):
        top, asking = name.partition(".")[0], _importers()
        asks = asking[0].partition(".")[0] if asking else ""
        if asks == "megatron":
            # Megatron uses what it finds of TransformerEngine; MindSpeed-LLM looks up Megatron's classes over it.
            served = top in _OF_MEGATRON or top == "transformer_engine" and asking[0] == "megatron.core.extensions.transformer_engine" and any(
                module.startswith("mindspeed_llm") for module in asking)
        else:
            served = asks in ("mindspeed", "mindspeed_llm") and top not in _PROBED
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if served else None


def install():
    sys.meta_path.insert(0, Kernels())
    sys.meta_path.append(Packages())
