#!/usr/bin/env python3
"""Makes a release and tries it: the archive of the sources, the Debian packages, the portable wheel, and their sums.

  release.py --out DIR [--rehearse] [--sign KEY]      run by ./tools/package --release
      --rehearse   of any commit: what keeps it from being a release is told, and what cannot be tried here is left out
      --sign       with this key of gpg: SHA256SUMS.asc beside SHA256SUMS

A release is a commit without changes beside it, under the tag vVERSION, whose CHANGELOG has a section of that version and whose C header
is recorded. Packages and wheel are tried in roots of Debian that have nothing else, the sources by a build from the archive alone.
Exit codes: 0 made and tried, 1 not, 2 wrong option.
"""
import argparse
import filecmp
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD_PYTHON = ROOT / "build/python/bin/python"
NOT_HERE = 77


def say(text):
    print(f"== release: {text}", file=sys.stderr, flush=True)


def call(*words, **options):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def version_of(root):
    """CMakeLists.txt is the one place that has it."""
    return re.search(r"^project\(kintsugi VERSION (\S+)", (root / "CMakeLists.txt").read_text(), re.MULTILINE)[1]


def obstacles(root, version):
    """What keeps this commit from being the release, as sentences that say what to do."""
    git = lambda *words: subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False).stdout.strip()
    if changed := git("status", "--porcelain"):
        yield f"{len(changed.splitlines())} files differ from the commit: commit or remove them"
    if f"v{version}" not in git("tag", "--points-at", "HEAD").split():
        yield f"the commit has no tag v{version}: git tag -s v{version}"
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        yield f"CHANGELOG.md has no section '## [{version}] - DATE': give [Unreleased] that name"
    header = root / "integrations/c/kintsugi.h"
    number = re.search(r"#define KINTSUGI_ABI_VERSION (\d+)", header.read_text())[1]
    recorded = root / "tests/c_abi/recorded" / number / "kintsugi/kintsugi.h"
    if not recorded.exists() or not filecmp.cmp(header, recorded, shallow=False):
        yield f"version {number} of the C ABI is not recorded: python3 tests/c_abi/abi_test.py --header {header.relative_to(root)} --record"


def archive(root, version, out):
    """The committed files alone; the same bytes whenever it is made."""
    plain = subprocess.run(["git", "-C", str(root), "archive", f"--prefix=kintsugi-{version}/", "HEAD"], capture_output=True, check=True).stdout
    made = out / f"kintsugi-{version}.tar.gz"
    made.write_bytes(gzip.compress(plain, mtime=0))
    return made


def sums(files):
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files, key=lambda file: file.name))


def build_of_the_archive(sources, version):
    """Who has the archive and nothing else builds it and sees a fault mended."""
    with tempfile.TemporaryDirectory(prefix="kintsugi-release-") as scratch:
        call("tar", "-xzf", sources, "-C", scratch)
        tree = Path(scratch, f"kintsugi-{version}")
        environment = {**os.environ, "CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1"}
        call("cmake", "--preset", "release", cwd=tree, env=environment)
        call("ninja", "-C", "build/release", "kintsugi", "byte_lm", cwd=tree, env=environment)
        told = call(tree / "build/release/bin/kintsugi", "--version")
        if not told.startswith(f"kintsugi {version}"):
            sys.exit(f"error: the command built from {sources.name} calls itself {told.splitlines()[0]}")
        call(tree / "build/release/bin/kintsugi", "demo", "--nproc", "2", "--steps", "20", cwd=scratch)


def tried_in_a_root(script, *words):
    """False: no such root can be made here."""
    done = subprocess.run([sys.executable, str(ROOT / "tests/package" / script), *map(str, words)], stdout=sys.stderr, check=False)
    if done.returncode not in (0, NOT_HERE):
        sys.exit(f"error: tests/package/{script} failed; nothing was released")
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--sign", metavar="KEY")
    options = parser.parse_args()
    version = version_of(ROOT)
    found = list(obstacles(ROOT, version))
    for obstacle in found:
        say(obstacle)
    if found and not options.rehearse:
        sys.exit(f"error: this commit is not the release {version}; --rehearse makes and tries one all the same")

    out = options.out.resolve() / version
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    say("the sources")
    sources = archive(ROOT, version, out)
    build_of_the_archive(sources, version)
    say("the Debian packages")
    packages = [Path(line) for line in call(ROOT / "tools/package", "--out", out).split()]
    trainer = ROOT / "build/release/bin/minimal_trainer"
    call("ninja", "-C", ROOT / "build/release", trainer.name)
    tried = tried_in_a_root("deb_test.py", trainer, "--packages", out)
    say("the wheel")
    wheel = Path(call(ROOT / "tools/package", "--wheel", "--out", out).split()[-1])
    tried = tried_in_a_root("portable_wheel_test.py", BUILD_PYTHON, "--wheel", wheel) and tried
    if not tried and not options.rehearse:
        sys.exit("error: what was made could not be tried: it takes root, mmdebstrap and a mirror of Debian")

    listed = out / "SHA256SUMS"
    listed.write_text(sums([sources, *packages, wheel]))
    if options.sign:
        call("gpg", "--batch", "--yes", "--local-user", options.sign, "--armor", "--detach-sign", listed)
    say(f"{out}{'' if tried else '; not tried in a root of its own'}")
    print(listed.read_text(), end="")


if __name__ == "__main__":
    main()
