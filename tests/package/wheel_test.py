"""The wheel, built twice from the same sources in two folders: byte for byte the same, and no file in it names either of them.

  wheel_test.py [--cached] [--keep FOLDER]
      --cached      the second build may take objects from the compiler cache; without it they are all compiled anew
      --keep        leave both wheels there, as for `auditwheel show` or for a look at what differs
Exit code 77 where pip can reach none of what it builds with.
"""
import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/multiproc"))
from harness import Failure  # noqa: E402

COMMIT = "0123456789ab"


def copy_sources(to):
    """What git would take along: also what is new and not yet committed, so that a change is tried before it is one."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, to / name, follow_symlinks=False)
    # As with an older checkout: when files were written must not show.
    subprocess.run(["find", str(to), "-type", "f", "-newermt", "1990-01-01", "-exec", "touch", "-d", f"@{1_600_000_000 + len(str(to))}",
                    "{}", "+"], check=True)


def build(sources, out, python, anew):
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("PYTHONPATH", "LD_LIBRARY_PATH", "CCACHE_BASEDIR", "CCACHE_NOHASHDIR")}
    environment |= {"SOURCE_DATE_EPOCH": "1700000000", **({"CCACHE_RECACHE": "1"} if anew else {})}
    done = subprocess.run([str(python), "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out),
                           f"--config-settings=cmake.define.KINTSUGI_COMMIT={COMMIT}", str(sources)],
                          capture_output=True, text=True, timeout=7000, env=environment, cwd=out.parent)
    if done.returncode != 0:
        nothing = "No matching distribution found for " in done.stderr
        raise LookupError(done.stderr[-3000:]) if nothing else Failure(done.stderr[-5000:])
    wheels = list(out.glob("*.whl"))
    if len(wheels) != 1:
        raise Failure(f"wheels: {wheels}")
    return wheels[0]


def members(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return [(info.filename, info.date_time, info.external_attr, hashlib.sha256(archive.read(info)).hexdigest())
                for info in archive.infolist()]


def must_be_the_same(first, second):
    if first.name != second.name:
        raise Failure(f"{first.name} and {second.name}")
    if first.read_bytes() == second.read_bytes():
        return
    one, other = members(first), members(second)
    differing = [f"{a[0]}: {[x for x, y in zip(a, b) if x != y]}" for a, b in zip(one, other) if a != b]
    raise Failure(f"the two wheels differ in {differing[:20] or 'how they are packed'}; {len(one)} and {len(other)} files")


def must_name_none_of(wheel, folders):
    """Neither where the sources lay nor where pip put what it builds with, nor anybody's home."""
    words = [str(folder).encode() for folder in folders] + [b"pip-build-env-", b"pip-req-build-", b"/home/", b"/root/"]
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            for word in words:
                at = data.find(word)
                if at >= 0:
                    raise Failure(f"{name} names '{data[max(0, at - 40):at + 120]!r}'")
        texts = [name for name in archive.namelist() if name.endswith(("kintsugi/bin/kintsugi", ".so")) or ".so." in name]
        if len(texts) < 3:
            raise Failure(f"the command, the library and the extension are looked through, not {texts}")
        if COMMIT.encode() not in archive.read(next(name for name in texts if name.endswith("bin/kintsugi"))):
            raise Failure("the command does not know its commit")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cached", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kintsugi-wheels-") as scratch:
        scratch = Path(scratch)
        subprocess.run(["/usr/bin/python3", "-m", "venv", str(scratch / "python")], check=True, timeout=300)
        folders = [scratch / "one", scratch / "another/place/of/longer/name"]
        wheels = []
        try:
            for number, folder in enumerate(folders):
                folder.mkdir(parents=True)
                copy_sources(folder)
                out = scratch / f"wheel-{number}"
                out.mkdir()
                wheels.append(build(folder, out, scratch / "python/bin/python", anew=number == 1 and not options.cached))
                print(f"-- {wheels[-1].name} in {folder.name}: {wheels[-1].stat().st_size} bytes", flush=True)
            if options.keep:
                for number, wheel in enumerate(wheels):
                    (options.keep / str(number)).mkdir(parents=True, exist_ok=True)
                    shutil.copy2(wheel, options.keep / str(number))
            must_name_none_of(wheels[0], [scratch, *folders])
            must_be_the_same(*wheels)
        except LookupError as reason:
            print(f"SKIPPED: pip finds none of what it builds with\n{reason}")
            return 77
        except (Failure, subprocess.SubprocessError, OSError) as error:
            print(f"FAILED  {error}", flush=True)
            return 1
    print("ok      the same bytes in two folders, and neither folder in them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
