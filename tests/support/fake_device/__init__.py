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

SOURCE = Path(__file__).with_name("fake_device.cc")


def _built():
    digest = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode() + sys.implementation.cache_tag.encode()).hexdigest()[:12]
    library = Path(os.environ["KINTSUGI_TORCH_CACHE"]) / f"fake-device-{digest}" / "_fake_device.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    with open(library.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            home = Path(torch.__file__).parent
            subprocess.run(["c++", "-O1", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-w", "-shared", "-DTORCH_EXTENSION_NAME=_fake_device",
                            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", f"-isystem{home}/include",
                            f"-isystem{home}/include/torch/csrc/api/include", f"-isystem{sysconfig.get_path('include')}", str(SOURCE),
                            "-o", f"{library}.new", f"-L{home}/lib", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"], check=True)  # fmt: skip
            os.rename(f"{library}.new", library)
    return library


if os.environ.get("FAKE_CUDA_GUARDED") != "1":
    raise ImportError("fake_device: set FAKE_CUDA_GUARDED=1 before the process starts, so that the host cannot touch the device's memory")
torch.utils.rename_privateuse1_backend("fake")
_spec = importlib.util.spec_from_file_location("_fake_device", _built())
_extension = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_extension)
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
