"""Runs a script of torch's with the device that the tests have: on_device.py SCRIPT WORDS... --device fake; on_device.py --as-cuda SCRIPT WORDS... for one that
names "cuda" itself, over the fake one.

The fake one (tests/support/fake_device) needs the fake driver in KINTSUGI_CUDA_LIBRARY, the fake NCCL in KINTSUGI_NCCL_LIBRARY. With --device cuda the script runs
as it is, each rank as if on a host of its own: several share a device then.
"""
import os
import runpy
import sys
from pathlib import Path

os.environ["NCCL_HOSTID"] = f"rank{os.environ.get('RANK', '0')} of process {os.getpid()}"
as_cuda = "--as-cuda" in sys.argv[1:2]
if as_cuda or "fake" in sys.argv:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
    import fake_device  # noqa: F401

    from kintsugi.torch import devices
    devices.SERVED.add("fake")
    if as_cuda:
        import fake_as_cuda
        fake_as_cuda.take_place()
else:
    import kintsugi.torch
    kintsugi.torch.deterministic()
sys.argv = sys.argv[1 + as_cuda :]
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
runpy.run_path(sys.argv[0], run_name="__main__")
