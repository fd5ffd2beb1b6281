"""Runs a script of torch's with the device that the tests have: on_device.py SCRIPT WORDS... --device fake; on_device.py --as-cuda SCRIPT WORDS... for one that
names "cuda" itself, over the fake one; on_device.py --everywhere SCRIPT WORDS... for one that names no device: what it makes lies on the fake one.

The fake one (tests/support/fake_device) needs the fake driver in KINTSUGI_CUDA_LIBRARY, the fake NCCL in KINTSUGI_NCCL_LIBRARY. With --device cuda the script runs
as it is, each rank as if on a host of its own: several share a device then.
"""
import os
import runpy
import sys
from pathlib import Path

os.environ["NCCL_HOSTID"] = f"rank{os.environ.get('RANK', '0')} of process {os.getpid()}"
how = sys.argv[1] if sys.argv[1] in ("--as-cuda", "--everywhere") else ""
if how or "fake" in sys.argv:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
    import fake_device

    if os.environ.get("KINTSUGI_INNER") == "torch":
        fake_device.register_collectives()
    from kintsugi.torch import devices
    devices.SERVED.add("fake")
    if how:
        import fake_as_cuda
        fake_as_cuda.take_place()
    if how == "--everywhere":
        fake_as_cuda.make_everything_there()
else:
    import kintsugi.torch
    kintsugi.torch.deterministic()
sys.argv = sys.argv[1 + bool(how) :]
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
runpy.run_path(sys.argv[0], run_name="__main__")
