#!/usr/bin/env python3
"""Ends ./tools/test: what failed, what was skipped and why, and the line "N passed, N failed".

    verdict.py JUNIT_FILE CTEST_EXIT_CODE

Exit 0 only when ctest said 0 and at least one test passed. A skipped test counts neither as passed nor as failed;
GoogleTest cases that were skipped inside a passing program are listed too, so that none goes unnoticed.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

GTEST_RAN = re.compile(r"^\[==========\] (\d+) tests? from .* ran", re.M)
GTEST_SKIPPED = re.compile(r"^\[  SKIPPED \] (\S+\.\S+) \(", re.M)
# GoogleTest prints "file:line: Skipped" and then the reason.
GTEST_REASON = re.compile(r": Skipped\n(.*)")
REASON = re.compile(r"^SKIPPED: (.*)", re.M)


def main():
    path, ctest_code = sys.argv[1], int(sys.argv[2])
    try:
        entries = ElementTree.parse(path).getroot().findall("testcase")
    except (OSError, ElementTree.ParseError) as error:
        print(f"VERDICT: FAILED, ctest left no results: {error}")
        return 1
    passed, failed, skipped, cases = [], [], [], 0
    for entry in entries:
        name, status, output = entry.get("name"), entry.get("status"), entry.findtext("system-out") or ""
        cases += sum(int(count) for count in GTEST_RAN.findall(output))
        if status == "run":
            passed.append(name)
            reasons = GTEST_REASON.findall(output)
            for number, case in enumerate(GTEST_SKIPPED.findall(output)):
                skipped.append(f"{name}: {case}: {reasons[number].strip() if number < len(reasons) else 'no reason given'}")
        elif status == "fail":
            failed.append(name)
        else:
            reason = REASON.search(output)
            skipped.append(f"{name}: {reason.group(1) if reason else 'no reason given'}")
    for line in skipped:
        print(f"skipped  {line}")
    for name in failed:
        print(f"FAILED   {name}")
    good = ctest_code == 0 and passed and not failed
    print(f"VERDICT: {'all is well' if good else 'FAILED'}: {cases} GoogleTest cases in {len(entries)} ctest entries, "
          f"{len(skipped)} skipped")
    print(f"{len(passed)} passed, {len(failed)} failed")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
