"""What torch may ask a process group for, in the torch at hand: the outer group has it, or it is known why not. Needs no run.

A virtual that nobody has looked at would fall through to torch's base class, which throws in the middle of somebody's step.
"""
import re
from pathlib import Path

import torch

import kintsugi.torch

# How c10d::Backend itself answers, and why that is right for a group over Gloo.
LEFT_TO_TORCH = {
    "says that it cannot": "supportsSplitting supportsTimeEstimation supportsShrinking supportsReconfigure "
                           "supportsWindow supportsAbortHooks supportsCompletionHooks supportsTensorAlloc",
    "asked for only where it can": "split merge shrink startTimeEstimate endTimeEstimate reconfigure "
                                   "get_reconfigure_handle new_window registerAbortHook unregisterAbortHook "
                                   "registerCompletionHook unregisterCompletionHook getMemAllocator allocateTensor",
    "Gloo has none": "gather_single gather_into_tensor registerOnCompletionHook waitForPendingWorks suspend resume getMemoryStats "
                     "eagerConnectSingleDevice addEphemeralTimeout",
    "torch compares the name with 'gloo' before": "monitoredBarrier",
    "goes on to the name that the outer group has": "all_gather_single all_gather_single_coalesced reduce_scatter_single "
                                                    "reduce_scatter_single_coalesced all_to_all_single",
    "kept by the base class": "setGroupUid getBoundDeviceId setBoundDeviceId isInitialized clone",
}


def names(pattern, text):
    return set(re.findall(pattern, re.sub(r"//.*", "", text)))


base = Path(torch.__file__).parent / "include/torch/csrc/distributed/c10d/Backend.hpp"
asked = names(r"virtual\s+[^;{]*?\b(\w+)\s*\(", base.read_text())
ours = Path(kintsugi.torch.__file__).parent / "group.h"
has = names(r"(?<!~)\b(\w+)\((?:[^;{()]|\([^()]*\))*\)\s*(?:const\s*)?override", ours.read_text())
left = {name for known in LEFT_TO_TORCH.values() for name in known.split()}
assert len(asked) >= 46, f"{base} reads otherwise than this test expects: {sorted(asked)}"
assert not asked - has - left, f"torch {torch.__version__} asks for what nobody has looked at: {sorted(asked - has - left)}"
assert not has - asked, f"overridden, though torch {torch.__version__} has no such virtual: {sorted(has - asked)}"
assert not has & left, sorted(has & left)
print("ok")
