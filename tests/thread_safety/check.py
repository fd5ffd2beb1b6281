"""Clang proves that what a mutex guards is touched only with it held (-Wthread-safety, runtime/base/mutex.h).

  check.py --build build/release [--clang clang++-14] [--plant]

Compiles every source of the product that has mutexes, with the flags of the build, through ccache where that is there. --plant
checks the check: copies of two small classes with a mistake each must be refused. Exit codes: 0 proven, 1 not, 77 no Clang.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HEADER = "runtime/base/mutex.h"
ROOMS = ("runtime/", "replica/", "callbacks/", "kernels/", "integrations/c/", "integrations/cpp/", "tools/")
FLAGS = ("-Wno-everything", "-Wthread-safety", "-Werror=thread-safety")

BARE = re.compile(r"std::(mutex|recursive_mutex|shared_mutex|condition_variable\w*|lock_guard|unique_lock|scoped_lock)\b")

PLANTED = {
    "a field without its mutex": """
class Counter {
 public:
  void Add() { ++count_; }
 private:
  kintsugi::Mutex mutex_;
  int count_ KINTSUGI_GUARDED_BY(mutex_) = 0;
};
void Use() { Counter().Add(); }
""",
    "a wait that looks at a field without its mutex": """
class Flag {
 public:
  void Wait() {
    kintsugi::MutexLock lock(mutex_);
    changed_.Wait(lock, [this] { return set_; });
  }
 private:
  kintsugi::Mutex mutex_;
  kintsugi::CondVar changed_;
  bool set_ KINTSUGI_GUARDED_BY(mutex_) = false;
};
void Use() { Flag().Wait(); }
""",
    "a field between Unlock and Lock": """
class Queue {
 public:
  void Take() {
    kintsugi::MutexLock lock(mutex_);
    lock.Unlock();
    ++taken_;
    lock.Lock();
  }
 private:
  kintsugi::Mutex mutex_;
  int taken_ KINTSUGI_GUARDED_BY(mutex_) = 0;
};
void Use() { Queue().Take(); }
""",
}


def includes(path):
    file = ROOT / path
    return re.findall(r'^#include "([^"]+)"', file.read_text(encoding="utf-8"), re.MULTILINE) if file.is_file() else []


def meets(source):
    """Whether it, or a header that it names, has mutexes: what is private to a class is touched nowhere else."""
    named = includes(source)
    return HEADER in named or any(HEADER in includes(header) for header in named)


def one_by_one(entries):
    """Each source of the build with the command that compiles it, also where that compiles others together with it (KINTSUGI_UNITY)."""
    for entry in entries:
        file = Path(entry["file"])
        names = re.findall(r'#include "(.+)"', file.read_text(encoding="utf-8")) if file.parent.name == "together" else [file]
        for name in names:
            yield {**entry, "file": str(ROOT / name)}


def sources_of_the_product(entries):
    """Sources of the build and the headers beside them, but for the header itself."""
    folders = {os.path.dirname(os.path.relpath(entry["file"], ROOT)) for entry in entries}
    names = {f"{folder}/{file.name}" for folder in folders if f"{folder}/".startswith(ROOMS)
             for file in (ROOT / folder).iterdir() if file.suffix in (".cc", ".h")}
    return sorted(names - {HEADER})


def command_of(entry, clang, output):
    """The build's command for Clang: its definitions, include folders and language, nothing that is GCC's own."""
    words = shlex.split(entry["command"])
    kept = [word for word in words if re.match(r"-(D|I|std=)", word)]
    for i, word in enumerate(words):
        if word == "-isystem":
            kept += [word, words[i + 1]]
    compiler = [clang] if not shutil.which("ccache") else ["ccache", clang]
    return [*compiler, *kept, *FLAGS, "-c", entry["file"], "-o", output]


def check(entry, clang, folder):
    output = folder / (Path(entry["file"]).relative_to(ROOT).as_posix().replace("/", "_") + ".o")
    done = subprocess.run(command_of(entry, clang, str(output)), cwd=entry["directory"], capture_output=True, text=True, check=False)
    output.unlink(missing_ok=True)
    return done.stderr if done.returncode else ""


def plant(clang):
    missed = []
    for name, text in PLANTED.items():
        done = subprocess.run([clang, "-std=c++20", f"-I{ROOT}", *FLAGS, "-fsyntax-only", "-x", "c++", "-"],
                              input=f'#include "{HEADER}"\n{text}', capture_output=True, text=True, check=False)
        if done.returncode == 0 or "requires holding mutex" not in done.stderr:
            missed.append(f"{name} was not found: {done.stderr}")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="a configured build folder")
    parser.add_argument("--clang", default="clang++-14")
    parser.add_argument("--plant", action="store_true", help="plant mistakes, and see that they are found")
    options = parser.parse_args()
    if not shutil.which(options.clang):
        print(f"skipped: no {options.clang} (package clang-14)")
        return 77
    if options.plant:
        missed = plant(options.clang)
        print("\n".join(missed) or f"{len(PLANTED)} planted mistakes were found")
        return 1 if missed else 0
    entries = list(one_by_one(json.loads((options.build / "compile_commands.json").read_text(encoding="utf-8"))))
    sources = {}
    for entry in entries:
        name = os.path.relpath(entry["file"], ROOT)
        if name.startswith(ROOMS) and name.endswith(".cc") and meets(name):
            sources.setdefault(name, entry)
    with tempfile.TemporaryDirectory(prefix="kintsugi-thread-safety-") as folder, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = dict(zip(sources, pool.map(lambda entry: check(entry, options.clang, Path(folder)), sources.values())))
    for name in sources_of_the_product(entries):
        if BARE.search((ROOT / name).read_text(encoding="utf-8")):
            texts[name] = f"a mutex, lock or condition variable of the standard library: use {HEADER}"
    failed = {name: text for name, text in texts.items() if text}
    for name, text in failed.items():
        print(f"{name}:\n{text}")
    print(f"{len(texts) - len(failed)} of {len(texts)} sources are proven")
    return 1 if failed or not texts else 0


if __name__ == "__main__":
    sys.exit(main())
