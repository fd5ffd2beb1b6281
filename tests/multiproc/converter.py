"""What befalls a converter of checkpoints: killed, a full disk, a read-only one, a source that changes or is cut short while it is
read. A clear error, nothing lost, nothing half visible; the next one finds its way."""
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

from harness import Failure, Skip, script

MIB = 1 << 20
# Large enough that a process is stopped in the midst of its writing, small enough for any disk.
TENSORS, TENSOR_BYTES = 8, MIB
TRIES = 50
TARGETS = [("torch", "out.pt", []), ("dcp", "out-dcp", ["--shards", "2"]), ("safetensors", "out-hf", ["--max-shard-size", "2MiB"]),
           ("native", "out-native", ["--shards", "3"])]


def write_source(path, seed):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for number in range(TENSORS):
        header[f"layer.{number}.weight"] = {"dtype": "F32", "shape": [TENSOR_BYTES // 4096, 1024],
                                            "data_offsets": [at, at + TENSOR_BYTES]}
        at += TENSOR_BYTES
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + random.Random(seed).randbytes(at))
    return path


def unfinished(destination):
    return [name for name in os.listdir(destination.parent) if name.startswith(destination.name + ".unfinished-")]


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def struck(runner, source, destination, options, blow):
    """Converts, stops the process in the midst of its writing, does `blow`, lets it go on; its exit code and its words."""
    line = [runner.kintsugi, "ckpt", "convert", str(source), str(destination), "--threads", "1", *options]
    before = destination.exists()
    for _ in range(TRIES):
        with subprocess.Popen(line, cwd=runner.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None and not any(f"-{process.pid}" in name for name in unfinished(destination)):
                pass
            os.kill(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if any(f"-{process.pid}" in name for name in unfinished(destination)):
                blow(process.pid)
                os.kill(process.pid, signal.SIGCONT)
                _, words = process.communicate(timeout=120)
                return process.returncode, words
            process.kill()
        if not before:  # it was done too soon
            remove(destination)
    raise Failure(f"{destination}: never stopped in the midst of it")


def must(runner, *args):
    done = runner.tool(["ckpt", *map(str, args)])
    if done.returncode != 0:
        raise Failure(f"{args}: code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def must_fail(code, words, *wanted):
    if code != 1 or not all(word in words for word in wanted):
        raise Failure(f"code {code}, wanted {wanted}:\n{words[-2000:]}")


def must_be_absent(destination):
    left = unfinished(destination)
    if destination.exists() or left:
        raise Failure(f"{destination} is there: {destination.exists()}; beside it {left}")


def killed(runner):
    """Nothing is visible; the next converter of that name removes what is left, and writes the whole."""
    source = write_source(runner.folder / "source.safetensors", 1)
    for name, place, options in TARGETS:
        destination = runner.folder / place
        code, words = struck(runner, source, destination, ["--to", name, *options], lambda pid: os.kill(pid, signal.SIGKILL))
        if code != -signal.SIGKILL or destination.exists() or not unfinished(destination):
            raise Failure(f"{name}: code {code}, there: {destination.exists()}, left: {unfinished(destination)}\n{words[-2000:]}")
        if runner.tool(["ckpt", "verify", str(destination)]).returncode == 0:
            raise Failure(f"{name}: half of it passes for whole")
        must(runner, "convert", source, destination, "--to", name, *options)
        if unfinished(destination):
            raise Failure(f"{name}: left behind {unfinished(destination)}")
        must(runner, "verify", destination)
        must(runner, "diff", source, destination)


def killed_while_it_overwrites(runner):
    """What lay there is there, whole."""
    old, new = write_source(runner.folder / "old.safetensors", 2), write_source(runner.folder / "new.safetensors", 3)
    for name, place, options in TARGETS:
        destination = runner.folder / place
        must(runner, "convert", old, destination, "--to", name, *options)
        code, _ = struck(runner, new, destination, ["--to", name, "--overwrite", *options], lambda pid: os.kill(pid, signal.SIGKILL))
        if code != -signal.SIGKILL:
            raise Failure(f"{name}: code {code}")
        must(runner, "verify", destination)
        must(runner, "diff", old, destination)
        must(runner, "convert", new, destination, "--to", name, "--overwrite", *options)
        must(runner, "verify", destination)
        must(runner, "diff", new, destination)


def source_changes(runner):
    """Bytes, or its length: found before anything is published; a mapping that ends too soon is no crash."""
    for name, place, options in TARGETS:
        source = write_source(runner.folder / "source.safetensors", 4)
        destination = runner.folder / place

        def write_into(_pid, path=source):
            with open(path, "r+b") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"\0")

        code, words = struck(runner, source, destination, ["--to", name, *options], write_into)
        must_fail(code, words, str(source), "changed while it was read")
        must_be_absent(destination)
        code, words = struck(runner, source, destination, ["--to", name, *options], lambda _, path=source: os.truncate(path, 4096))
        must_fail(code, words, "while it was read")  # behind the last read it is a change like any other
        if destination.exists():
            raise Failure(f"{destination}: published")


class Disk:
    """A small one."""

    def __init__(self, runner, size):
        self.folder = runner.folder / "disk"
        self.folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(self.folder)], capture_output=True, check=False)
        if done.returncode != 0:
            raise Skip("no right to mount a small disk")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", str(self.folder)], check=True)

    def read_only(self):
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)


def full_disk(runner):
    source = write_source(runner.folder / "source.safetensors", 5)
    for name, place, options in TARGETS:
        with Disk(runner, "5m") as disk:
            destination = disk.folder / place
            done = runner.tool(["ckpt", "convert", str(source), str(destination), "--to", name, *options])
            must_fail(done.returncode, done.stderr, str(disk.folder), "No space left on device")
            must_be_absent(destination)
            must(runner, "convert", source, destination, "--to", name, "--only", "layer.1.*", *options)
            must(runner, "verify", destination)
        disk.folder.rmdir()


def read_only_folder(runner):
    source = write_source(runner.folder / "source.safetensors", 6)
    with Disk(runner, "32m") as disk:
        kept = disk.folder / "kept"
        must(runner, "convert", source, kept, "--to", "dcp")
        disk.read_only()
        for name, place, options in TARGETS:
            done = runner.tool(["ckpt", "convert", str(source), str(disk.folder / place), "--to", name, *options])
            must_fail(done.returncode, done.stderr, str(disk.folder), "Read-only file system")
            must_be_absent(disk.folder / place)
        done = runner.tool(["ckpt", "convert", str(source), str(kept), "--to", "dcp", "--overwrite"])
        must_fail(done.returncode, done.stderr, "Read-only file system")
        # To read from there is no harm.
        must(runner, "verify", kept)
        must(runner, "convert", kept, Path(runner.folder) / "from-there.pt", "--to", "torch")
        must(runner, "diff", kept, runner.folder / "from-there.pt")


def its_own_peak(runner):
    source = write_source(runner.folder / "source.safetensors", 7)
    ours = bytearray(b"\1") * (256 * MIB)  # Stands in this process: no memory of the one that it starts.
    done = runner.tool(["ckpt", "convert", str(source), str(runner.folder / "out.pt"), "--to", "torch", "--json"])
    if done.returncode:
        raise Failure(done.stderr)
    peak_mib = json.loads(done.stdout)["peak_mib"]
    if not 1 < peak_mib < len(ours) / MIB / 2:
        raise Failure(f"{peak_mib} MiB told for {TENSORS * TENSOR_BYTES / MIB} MiB of state")


def zipped_anew(runner):
    """torch.load takes a file that somebody unpacked and zipped again, with compression."""
    source = write_source(runner.folder / "source.safetensors", 8)
    plain, packed = runner.folder / "plain.pt", runner.folder / "packed.pt"
    must(runner, "convert", source, plain, "--to", "torch")
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    must(runner, "diff", plain, packed)
    must(runner, "verify", packed)
    done = runner.tool(["ckpt", "show", str(packed)])
    if "compressed" not in done.stdout + done.stderr:
        raise Failure(f"nothing says that it takes memory\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    data = bytearray(packed.read_bytes())
    data[len(data) // 2] ^= 0x10
    packed.write_bytes(data)
    done = runner.tool(["ckpt", "convert", str(packed), str(runner.folder / "out.pt"), "--to", "torch"])
    must_fail(done.returncode, done.stderr, "packed.pt", "damaged")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("a killed converter leaves nothing visible, and nothing for good", killed),
        ("one that is killed while it overwrites leaves what was there", killed_while_it_overwrites),
        ("a source that changes or is cut short is found", source_changes),
        ("a full disk is named, and what fits is written", full_disk),
        ("a read-only folder is named, and read from", read_only_folder),
        ("a file of torch that was zipped anew with compression is read", zipped_anew),
        ("the peak that it tells is its own", its_own_peak),
    ]))
