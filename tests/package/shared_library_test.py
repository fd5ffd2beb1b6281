#!/usr/bin/env python3
"""libkintsugi.so is a quiet guest: it shows only its own symbols, and loading it changes nothing in the process.

    shared_library_test.py LIBRARY
"""

import ctypes
import re
import subprocess
import sys
import threading
import unittest

LIBRARY = sys.argv.pop(1)


def exported_symbols():
    shown = subprocess.run(["nm", "--dynamic", "--defined-only", "--format=posix", LIBRARY], capture_output=True,
                           text=True, check=True).stdout
    return [line.split()[0].split("@")[0] for line in shown.splitlines()]


def process_manners():
    """What a guest must leave alone: signal handlers and masks, and the number of threads, as the kernel sees them. Not SigQ: it
    counts the queued signals of all processes of the user."""
    with open("/proc/self/status", encoding="ascii") as status:
        return [line for line in status if line.startswith(("SigBlk", "SigIgn", "SigCgt", "Threads"))]


class SharedLibrary(unittest.TestCase):
    def test_shows_only_its_own_symbols(self):
        symbols = exported_symbols()
        self.assertIn("kintsugi_version", symbols)
        own = re.compile(r"kintsugi_|_ZNK?8kintsugi|_ZT[ISV]N8kintsugi|_ZTh.*_N8kintsugi")
        self.assertEqual([symbol for symbol in symbols if not own.match(symbol)], [])

    def test_its_name_carries_the_version(self):
        dynamic = subprocess.run(["readelf", "--dynamic", LIBRARY], capture_output=True, text=True, check=True).stdout
        self.assertRegex(dynamic, r"SONAME.*\[libkintsugi\.so\.\d+\.\d+\]")

    def test_loading_changes_no_signal_and_starts_no_thread(self):
        before = process_manners()
        library = ctypes.CDLL(LIBRARY)
        library.kintsugi_version.restype = ctypes.c_char_p
        self.assertRegex(library.kintsugi_version().decode(), r"^\d+\.\d+\.\d+$")
        self.assertEqual(process_manners(), before)


if __name__ == "__main__":
    unittest.main()
