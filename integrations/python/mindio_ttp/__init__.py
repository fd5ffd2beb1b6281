"""mindio_ttp, by Kintsugi: the interface of MindIO's training fault tolerance over Kintsugi's runtime. README.md says what differs."""

import os
import sys

import kintsugi

__version__ = f"kintsugi-{kintsugi.__version__}"
# Clients import some modules by their own names.
for _folder in ("framework_ttp", "controller_ttp", "utils"):
    _path = os.path.join(os.path.dirname(os.path.abspath(__file__)), _folder)
    if _path not in sys.path:
        sys.path.append(_path)

print(f"mindio_ttp: this is Kintsugi's ({__version__}, {os.path.dirname(os.path.abspath(__file__))})", file=sys.stderr)
