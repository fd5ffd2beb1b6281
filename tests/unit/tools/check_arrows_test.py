#!/usr/bin/env python3
"""tools/check_arrows sees every kind of violation: each is planted alone in a small clean tree."""

import contextlib
import importlib.util
import io
import subprocess
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "check_arrows"


def load_script():
    """As a module, so that a case costs milliseconds and not an interpreter's start."""
    sys.dont_write_bytecode = True
    loader = SourceFileLoader("check_arrows", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


check_arrows = load_script()

CLEAN = {
    "CMakeLists.txt": "",
    "README.md": "",
    "runtime/base/ids.h": "#pragma once\n#include <string>\n",
    "runtime/base/log.h": "#pragma once\n#include <mutex>\n",
    "runtime/core/phase.h": '#pragma once\n#include <vector>\n#include "runtime/base/ids.h"\n',
    "runtime/controller/socket.h": '#pragma once\n#include <thread>\n#include "runtime/core/phase.h"\n',
    "callbacks/state/registry.h": '#pragma once\n#include "runtime/base/ids.h"\n',
    "replica/stream/link.h": '#pragma once\n#include "callbacks/state/registry.h"\n#include "runtime/base/ids.h"\n',
    "kernels/pack.h": '#pragma once\n#include "runtime/base/ids.h"\n',
    "integrations/abi.cc": '#include "replica/stream/link.h"\n#include "runtime/controller/socket.h"\n',
    "tools/main.cc": '#include "integrations/abi.h"\n',
    "tests/all_test.cc": '#include <gtest/gtest.h>\n#include "replica/stream/link.h"\n#include "tools/main.h"\n',
}


def run(files, git=False, tracked=False, described=True):
    """described: each header opens with what it is, as it must."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("/* A header. */" + text if described and name.endswith(".h") else text)
        if git:
            subprocess.run(["git", "init", "--quiet", folder], check=True)
        if tracked:
            subprocess.run(["git", "-C", folder, "add", "--all"], check=True)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = check_arrows.main(["--root", folder])
    return code, output.getvalue()


class CheckArrows(unittest.TestCase):
    def see(self, place, *words, files):
        """Plants files (name -> text) in the clean tree; expects exactly one violation, at `place`, that says `words`."""
        code, output = run({**CLEAN, **files})
        self.assertEqual(code, 1, output)
        self.assertIn("check_arrows: 1 violations", output)
        self.assertTrue(output.startswith(place + ": "), output)
        for word in words:
            self.assertIn(word, output)

    def test_a_contract_begins_its_line(self):
        self.see("runtime/net/link.h:2", "'Errors:'", files={
            "runtime/net/link.h": "#pragma once\n// A link. Errors: none.\n// Threads: any.\n"})

    def test_a_room_is_held_to_its_own_row(self):
        self.see("replica/stream/make.cc:1", "replica/stream may not include", files={
            "replica/stream/make.cc": '#include "replica/links/choice.h"\n', "replica/links/choice.h": ""})

    def test_rooms_of_python_are_held_to_their_rows(self):
        room = "integrations/python/kintsugi/"
        files = {room + "run.py": "import os\nfrom . import objects\n", room + "objects.py": "", room + "torch/run.py": "from ..objects import Kept\n"}
        code, output = run({**CLEAN, **files})
        self.assertEqual(code, 0, output)
        for text in ["from .torch.run import x", "from . import torch\nfrom .torch import run", "import kintsugi.torch.run"]:
            self.see(room + f"objects.py:{text.count(chr(10)) + 1}", "kintsugi may not import kintsugi/torch", files={
                room + "objects.py": f"{text}\n", room + "torch/run.py": ""})

    def test_files_of_python_import_each_other_one_way(self):
        room = "integrations/python/kintsugi/"
        files = {room + "run.py": "from .objects import Kept\n",
                 room + "objects.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .run import Run\n"}
        code, output = run({**CLEAN, **files})
        self.assertEqual(code, 0, output)
        code, output = run({**CLEAN, **files, room + "objects.py": "def f():\n    from .run import Run\n"})
        self.assertEqual(code, 1, output)
        for name in ("run", "objects"):
            self.assertIn(f"{room}{name}.py:1: what it imports leads back to it", output)

    def test_a_readme_says_what_its_room_may_use(self):
        may = "# net\n\nMay depend on: `runtime/base`{}. Never on `replica`.\n"
        code, output = run({**CLEAN, "runtime/net/README.md": may.format(", Asio")})
        self.assertEqual(code, 0, output)
        self.see("runtime/net/README.md:3", "names runtime/wire", files={"runtime/net/README.md": may.format(", `runtime/wire`")})
        self.see("runtime/net/README.md:2", "does not name runtime/base", files={
            "runtime/net/README.md": "# net\nMay depend on the system.\n"})

    def test_a_header_says_what_it_is(self):
        code, output = run({"kernels/told.h": "// Told.\n#pragma once\n", "kernels/bare.h": "#pragma once\n// Bare.\n"}, described=False)
        self.assertEqual(code, 1)
        self.assertIn("kernels/bare.h:1: the header does not open with a comment", output)
        self.assertNotIn("told.h", output)

    def test_a_readme_names_nothing_that_is_not_there(self):
        self.see("kernels/README.md:2", "there is no file cast.h", files={
            "kernels/README.md": "| `pack.h` | packs |\n| `cast.h` | casts |\n"})
        self.see("kernels/README.md:2", "there is no file cast.h", files={"kernels/README.md": "`pack.h` packs,\n`cast.h` casts.\n"})

    def test_a_link_leads_somewhere(self):
        page = "# Net\n\n## What `it` says\n\n`[no](link)` [room](../core) [head](#what-it-says) [web](https://x.org)\n```\n[a](b)\n```\n"
        code, output = run({**CLEAN, "runtime/net/notes.md": page})
        self.assertEqual(code, 0, output)
        self.see("runtime/net/notes.md:9", "../core/phases.h leads nowhere", files={
            "runtime/net/notes.md": page + "[phase](../core/phases.h)\n"})
        self.see("runtime/net/notes.md:9", "leads nowhere", files={"runtime/net/notes.md": page + '<img src="shape.svg">\n'})
        self.see("README.md:1", "no heading for the link runtime/net/notes.md#says", files={
            "runtime/net/notes.md": page, "README.md": "[says](runtime/net/notes.md#says)\n"})

    def test_a_picture_shows_the_rows(self):
        shown = ("  agent --> device & inject & net & process & wire\n  controller --> journal & net\n  journal --> wire\n"
                 "  launcher --> controller & device & inject & process\n  sim --> wire\n  wire --> core\n")
        index = "ids log phase socket\n"
        code, output = run({**CLEAN, "runtime/README.md": index + shown})
        self.assertEqual(code, 0, output)
        self.see("runtime/README.md:1", "sim --> inject", files={
            "runtime/README.md": index + shown.replace("sim --> wire", "sim --> wire & inject")})

    def test_a_part_knows_only_those_before_it(self):
        parts = {"runtime/core/README.md": "May depend on `runtime/base`, `callbacks`.\n```parts\nPhase | the ground\n  BigPart\n```\n",
                 "runtime/core/big_part.h": '#include "runtime/core/phase.h"\n'}
        self.assertEqual(run({**CLEAN, **parts})[0], 0, run({**CLEAN, **parts})[1])
        code, output = run({**CLEAN, **parts, "runtime/core/phase.cc": '\n#include "runtime/core/big_part.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("runtime/core/phase.cc:2: Phase stands before BigPart in runtime/core/README.md", output)
        del parts["runtime/core/big_part.h"]
        self.assertIn("no header runtime/core/big_part.h", run({**CLEAN, **parts})[1])

    def test_a_name_is_one_type(self):
        """Whatever else stands around it; a type within another is its owner's affair."""
        head = "#pragma once\nnamespace kintsugi::{} {{\n"
        ours = {"runtime/net/seal.h": head.format("net") + "// struct Seal {};\nenum class KINTSUGI_EXPORT Seal : int { kOne };\n}\n"}
        self.see("runtime/net/seal.h:4", "Seal is another type in replica/save/seal.h:3", files={
            **ours, "replica/save/seal.h": head.format("save") + "struct Seal final : Base {\n};\n}\n"})
        self.see("runtime/net/stamp.h:3", "Seal is another type in runtime/net/seal.h:4", files={
            **ours, "runtime/net/stamp.h": head.format("net") + "class Seal {\n};\n}\n"})  # one namespace: who links both has either
        for other in [head.format("net") + "struct Seal;\n}\n", head.format("save") + "struct Owner { struct Seal {}; };\n}\n",
                      head.format("sim") + "struct Seal {};\n}\n", head.format("save") + "class Seals {};\n}\n",
                      head.format("net") + "class Seal::Part {};\n}\n"]:
            with self.subTest(other=other):
                self.assertEqual(run({**CLEAN, **ours, "runtime/sim/seal.h": other})[0], 0)

    def test_an_event_of_the_log_can_be_looked_up(self):
        page = {"tools/OPERATIONS.md": "| `node_lost`, `node_back` | which host; a run_ended in a sentence is none |\n"}
        for line, event in (('LogLine("node_gone", {})', "node_gone"), ('LogLine(ended ? "node_lost" : "run_ended", {})', "run_ended"),
                            ('Write("event=save_failed step=" + step)', "save_failed"), ('Say("node_gone", why)', "node_gone"),
                            ('Say(LogLevel::kInfo, "node_gone", why)', "node_gone")):
            self.see("runtime/a.cc:2", f"event {event} is not in tools/OPERATIONS.md", files={**page, "runtime/a.cc": f"\n{line};\n"})
        code, output = run({**CLEAN, **page, "runtime/a.cc": 'LogLine("node_lost", {}); LogLine(back ? "node_back" : "node_lost", {});\n',
                            "runtime/sim/a.cc": 'LogLine("seed", {});\n'})
        self.assertEqual(code, 0, output)

    def test_a_clean_tree_passes(self):
        code, output = run(CLEAN)
        self.assertEqual(code, 0, output)
        self.assertIn("keep to the arrows", output)

    def test_an_empty_tree_does_not_pass(self):
        self.assertEqual(run({"README.md": ""})[0], 1)

    def test_each_forbidden_arrow_is_seen_with_its_line(self):
        for source, target in [
            ("runtime/net/a.h", "replica/stream/link.h"),
            ("replica/stream/a.h", "runtime/controller/socket.h"),
            ("replica/stream/a.h", "runtime/core/phase.h"),
            ("replica/save/a.cc", "runtime/controller/socket.h"),
            ("runtime/base/a.h", "runtime/core/phase.h"),
            ("runtime/base/a.h", "callbacks/state/registry.h"),
            ("kernels/a.h", "callbacks/state/registry.h"),
            ("callbacks/state/a.h", "replica/stream/link.h"),
            ("callbacks/state/a.h", "kernels/pack.h"),
            ("callbacks/state/a.h", "runtime/core/phase.h"),
            ("runtime/core/a.h", "runtime/net/types.h"),
            ("runtime/a.h", "integrations/abi.h"),
            ("replica/a.h", "tools/main.h"),
            ("integrations/a.h", "tests/help.h"),
            ("tools/a.h", "tests/help.h"),
        ]:
            with self.subTest(source=source, target=target):
                self.see(f"{source}:3", f"may not include {target}",
                         files={source: f'#pragma once\n// A line.\n#include "{target}"\n'})

    def test_angle_brackets_do_not_hide_an_arrow(self):
        self.see("runtime/a.h:1", "may not include", files={"runtime/a.h": "#  include <replica/stream/link.h>\n"})

    def test_a_path_not_from_the_root_is_seen(self):
        self.see("replica/stream/a.h:1", "not written from the project root",
                 files={"replica/stream/a.h": '#include "link.h"\n'})

    def test_each_impure_header_is_seen(self):
        for header in ["iostream", "fstream", "cstdio", "sys/socket.h", "unistd.h", "filesystem", "thread", "mutex",
                       "condition_variable", "future", "ctime", "random", "cstdlib", "boost/asio.hpp", "spdlog/spdlog.h",
                       "google/protobuf/message.h", "gloo/context.h"]:
            with self.subTest(header=header):
                self.see("runtime/core/a.cc:2", "is pure", header,
                         files={"runtime/core/a.cc": f"#include <vector>\n#include <{header}>\n"})

    def test_logging_and_random_seams_are_impure(self):
        self.see("runtime/core/a.cc:1", "logging", files={"runtime/core/a.cc": '#include "runtime/base/log.h"\n'})
        self.see("runtime/core/a.cc:1", "random numbers",
                 files={"runtime/core/a.cc": '#include "runtime/base/random.h"\n', "runtime/base/random.h": ""})

    def test_an_impure_header_behind_another_is_seen_with_its_chain(self):
        self.see("runtime/core/a.cc:1", "runtime/base/queue.h -> mutex",
                 files={"runtime/core/a.cc": '#include "runtime/base/queue.h"\n',
                        "runtime/base/queue.h": "#include <mutex>\n"})

    def test_each_impure_deed_is_seen(self):
        for deed in ["auto now = std::chrono::steady_clock::now();", "std::chrono::system_clock::now();",
                     "SteadyClock clock;", "int n = rand();", "std::mt19937_64 g;", 'std::cerr << "x";',
                     'printf("x");', 'getenv("HOME");', "int million = 1'000'000; int n = rand(); char c = 'x';"]:
            with self.subTest(deed=deed):
                self.see("runtime/core/a.cc:2", "is pure", files={"runtime/core/a.cc": f"void F() {{\n{deed}\n}}\n"})

    def test_comments_and_strings_are_not_code(self):
        text = '// #include <thread>\n/* steady_clock::now()\n#include <mutex> */\nauto s = "rand() // std::cout";\n'
        code, output = run({**CLEAN, "runtime/core/a.cc": text})
        self.assertEqual(code, 0, output)

    def test_a_foreign_top_level_entry_is_seen(self):
        self.see("docs/index.md:1", "does not belong at the top level", files={"docs/index.md": ""})
        self.see("notes.txt:1", "does not belong at the top level", files={"notes.txt": ""})

    def test_with_git_only_what_it_tracks_can_be_out_of_place(self):
        """A run leaves checkpoints and reports where it was started, perhaps in the repository."""
        left = {**CLEAN, "kintsugi-checkpoints/latest": "step_0000000012\n", "report/index.html": ""}
        code, output = run(left, git=True)
        self.assertEqual(code, 0, output)
        self.assertEqual(run(left, git=True, tracked=True)[0], 1)

    def test_with_git_new_sources_in_our_folders_are_looked_at_before_they_are_added(self):
        wrong = '#include "replica/stream/link.h"\n'
        self.assertEqual(run({**CLEAN, "runtime/a.h": wrong}, git=True)[0], 1)
        self.assertEqual(run({**CLEAN, "runtime/a.h": wrong, ".gitignore": "a.h\n"}, git=True)[0], 0)

    def test_a_wrong_option_is_refused_with_the_usage(self):
        done = subprocess.run([sys.executable, SCRIPT, "--rot", "x"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage: ./tools/check_arrows", done.stderr)


if __name__ == "__main__":
    unittest.main()
