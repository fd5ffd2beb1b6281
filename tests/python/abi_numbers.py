"""The package's numbers of the C ABI are those of its header, under the same names."""
import enum
import re

from door import ROOT, Failure

import kintsugi.abi

PREFIXES = {"Code": "KINTSUGI_", "Joined": "KINTSUGI_", "TaskKind": "KINTSUGI_TASK_", "Rung": "KINTSUGI_RUNG_", "Outcome": "KINTSUGI_",
            "Phase": "KINTSUGI_", "Activity": "KINTSUGI_", "TakeOver": "KINTSUGI_TAKE_OVER_"}
WHOLE = {"Joined": "join_kind", "TaskKind": "task_kind", "Rung": "rung", "Outcome": "outcome", "Phase": "phase", "Activity": "activity",
         "TakeOver": "take_over"}

header = (ROOT / "integrations/c/kintsugi.h").read_text()
numbers = {}
for body, name in re.findall(r"typedef enum kintsugi_\w+ \{(.*?)\} kintsugi_(\w+);", header, re.S):
    numbers[name] = {key: int(value) for key, value in re.findall(r"(KINTSUGI_[A-Z_]+) = (\d+)", body)}
ours = {name: found for name, found in vars(kintsugi.abi).items() if isinstance(found, enum.EnumType) and found is not enum.IntEnum}
if ours.keys() != PREFIXES.keys():
    raise Failure(f"not compared: {sorted(ours.keys() ^ PREFIXES.keys())}")
for name, kind in ours.items():
    said = {PREFIXES[name] + member.name: int(member) for member in kind}
    theirs = numbers[WHOLE.get(name, "code")]
    wrong = {key: value for key, value in said.items() if theirs.get(key) != value}
    if wrong or (name in WHOLE and said != theirs):
        raise Failure(f"{name}: {said}, the header has {theirs}")
print("as the header has them")
