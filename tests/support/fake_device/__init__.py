"""torch's device "fake": `import fake_device` makes it. Needs the fake driver in KINTSUGI_CUDA_LIBRARY and FAKE_CUDA_GUARDED=1 beside it; the
extension is built once per torch and source, in KINTSUGI_TORCH_CACHE."""
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
import types
from pathlib import Path

import torch

HERE = Path(__file__).parent


def _built(name):
    """The extension of NAME.cc."""
    source = HERE / f"{name}.cc"
    digest = hashlib.sha256(source.read_bytes() + torch.__version__.encode() + sys.implementation.cache_tag.encode()).hexdigest()[:12]
    library = Path(os.environ["KINTSUGI_TORCH_CACHE"]) / f"{name.replace('_', '-')}-{digest}" / f"_{name}.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    with open(library.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            home = Path(torch.__file__).parent
            subprocess.run(["c++", "-O1", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-w", "-shared", f"-DTORCH_EXTENSION_NAME=_{name}",
                            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", f"-isystem{home}/include",
                            f"-isystem{home}/include/torch/csrc/api/include", f"-isystem{sysconfig.get_path('include')}", str(source),
                            "-o", f"{library}.new", f"-L{home}/lib", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"], check=True)  # fmt: skip
            os.rename(f"{library}.new", library)
    spec = importlib.util.spec_from_file_location(f"_{name}", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if os.environ.get("FAKE_CUDA_GUARDED") != "1":
    raise ImportError("fake_device: set FAKE_CUDA_GUARDED=1 before the process starts, so that the host cannot touch the device's memory")
torch.utils.rename_privateuse1_backend("fake")
_extension = _built("fake_device")
counts, synchronize, busy = _extension.counts, _extension.synchronize, _extension.busy

_module = types.ModuleType("torch.fake")
_module.is_available = lambda: True
_module.is_initialized = lambda: True
_module.device_count = lambda: 1
_module.current_device = lambda: 0
_module.set_device = lambda _device: None
_module.synchronize = lambda *_: synchronize()
_module._is_in_bad_fork = lambda: False
_module.manual_seed = _module.manual_seed_all = lambda seed: _extension.default_generator().manual_seed(seed)
_module.initial_seed = lambda: _extension.default_generator().initial_seed()
_module.get_rng_state = lambda _device=None: _extension.default_generator().get_state()
_module.set_rng_state = lambda state, _device=None: _extension.default_generator().set_state(state)
_module.get_rng_state_all = lambda: [_module.get_rng_state()]
_module.set_rng_state_all = lambda states: _module.set_rng_state(states[0])
_module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
_module.current_stream = lambda _device=None: torch.accelerator.current_stream()
_module.Stream = lambda device=None, priority=0: torch.Stream(torch.device("fake", 0), priority=priority)
_module.Event = lambda enable_timing=False, **_: torch.Event(torch.device("fake", 0), enable_timing=enable_timing)
_module.device = lambda _: contextlib.nullcontext()
_module.get_device_properties = lambda *_: None
_module.stream = lambda stream: stream if stream is not None else contextlib.nullcontext()
torch._register_device_module("fake", _module)
sys.modules["torch.fake"] = _module
torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_storage=True)

from . import sync_batch_norm  # noqa: E402, F401


def register_collectives():
    """A backend of torch's for it (collectives.cc), as ProcessGroupNCCL is CUDA's."""
    import torch.distributed as dist

    made = _built("collectives").Collectives
    dist.Backend.register_backend("fakeccl", lambda store, rank, size, timeout: made(dist.ProcessGroupGloo(store, rank, size, timeout)), devices=["fake"])
