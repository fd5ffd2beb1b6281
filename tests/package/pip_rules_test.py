"""What pip would build and install, without building it: pyproject.toml's targets are there, and its wheel has all that it must.

  pip_rules_test.py PYTHON      of an environment with nanobind (build/python)
"""
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ["integrations/python/kintsugi/", "_core.", "libkintsugi.so.", "bin/kintsugi", "torch/built"]


def main():
    python = sys.argv[1]
    if not Path(python).exists():
        print("SKIPPED: there is no build/python; ./tools/setup --python makes it")
        return 77
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    defines = {name: value["default"] if isinstance(value, dict) else value
               for name, value in settings["cmake"]["define"].items()}
    with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
        # As scikit-build-core calls it; torch is looked for by an interpreter that has none, which is quicker.
        done = subprocess.run(["cmake", "-S", str(ROOT), "-B", folder, "-G", "Ninja", "-DSKBUILD=2", "-DCMAKE_BUILD_TYPE=Release",
                               f"-DPython_EXECUTABLE={python}", *(f"-D{name}={value}" for name, value in defines.items())],
                              capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            print(done.stdout[-3000:] + done.stderr[-3000:])
            return 1
        known = {line.split(":")[0] for line in subprocess.run(["ninja", "-C", folder, "-t", "targets", "all"], check=True,
                                                               capture_output=True, text=True).stdout.splitlines()}
        missing = [target for target in settings["build"]["targets"] if target not in known]
        rules = "".join(path.read_text() for path in Path(folder).rglob("cmake_install.cmake"))
        missing += [part for part in INSTALLED if part not in rules]
        tests = [target for target in known if target.endswith("_test") and "/" not in target]
    if missing or tests:
        print(f"the wheel would lack {missing}; tests that would be built: {tests[:5]}")
        return 1
    print(f"{len(settings['build']['targets'])} targets, {len(INSTALLED)} kinds of files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
