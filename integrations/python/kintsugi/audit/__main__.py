"""Started by `kintsugi audit`, by the folder's path: PYTHON .../kintsugi/audit OPTIONS, these as JSON."""

import importlib
import importlib.util
import sys
from pathlib import Path

_folder = Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location("_kintsugi_audit", _folder / "__init__.py", submodule_search_locations=[str(_folder)])
assert _spec is not None
sys.modules["_kintsugi_audit"] = importlib.util.module_from_spec(_spec)
sys.exit(importlib.import_module("_kintsugi_audit.command").main(sys.argv[1]))
