"""Found first by every Python process of a program under `kintsugi audit` or `kintsugi watch` (PYTHONPATH). Starts their hooks, then the
sitecustomize that this one hides, if there is one: the program finds its interpreter as it was."""

import importlib.machinery
import importlib.util
import os
import sys


def _look(name: str) -> None:
    """The hook of `kintsugi <name>`."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), name)
    # By its path, under a name of its own: the package kintsugi may not be in this interpreter, and is not imported by looking.
    spec = importlib.util.spec_from_file_location(f"_kintsugi_{name}", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[f"_kintsugi_{name}"] = package
    spec.loader.exec_module(package)
    importlib.import_module(f"_kintsugi_{name}.hook").install()


def _hidden() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    others = [place for place in sys.path if os.path.abspath(place or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("KINTSUGI_AUDIT_RECORDS"):
    _look("audit")
if os.environ.get("KINTSUGI_WATCH_MARKS"):
    _look("watch")
_hidden()
