"""The package's numbers of the C ABI are those of its header, under the same names."""
import enum
import re

from door import ROOT, Failure

import kintsugi.abi

HEADERS = {"Code": ("code", ""), "Joined": ("join_kind", ""), "TaskKind": ("task_kind", "TASK_"), "Rung": ("rung", "RUNG_"),
           "Outcome": ("outcome", ""), "Phase": ("phase", ""), "Activity": ("activity", ""), "TakeOver": ("take_over", "TAKE_OVER_")}

header = (ROOT / "integrations/c/kintsugi.h").read_text()
numbers = {name: {key: int(value) for key, value in re.findall(r"KINTSUGI_([A-Z_]+) = (\d+)", body)}
           for body, name in re.findall(r"typedef enum kintsugi_\w+ \{(.*?)\} kintsugi_(\w+);", header, re.S)}
ours = {name: kind for name, kind in vars(kintsugi.abi).items() if isinstance(kind, enum.EnumType)}
if ours.keys() != HEADERS.keys():
    raise Failure(f"not compared: {sorted(ours.keys() ^ HEADERS.keys())}")
for name, kind in ours.items():
    theirs, prefix = HEADERS[name]
    said = {prefix + member.name: int(member) for member in kind}
    if said != numbers[theirs]:
        raise Failure(f"{name} differs from kintsugi_{theirs} in {sorted(said.items() ^ numbers[theirs].items())}")
print("as the header has them")
