"""What a rank tells the warm process of its host (warm.py)."""

from __future__ import annotations

import os
import sys


def report_modules() -> None:
    """In a rank: tells the warm process what to import, once for each host."""
    if "KINTSUGI_WARM_FD" not in os.environ or os.environ.get("LOCAL_RANK") != "0":
        return
    fd = int(os.environ["KINTSUGI_WARM_FD"])
    if os.fstat(fd).st_size == 0:
        names = [name for name in sys.modules if name not in ("__main__", "__mp_main__")]
        os.pwrite(fd, "\n".join(names).encode(), 0)
