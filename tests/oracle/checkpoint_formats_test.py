#!/usr/bin/env python3
"""Checkpoints against the libraries whose formats they are: written by them and read by us, and the other way round.

    checkpoint_formats_test.py KINTSUGI

Compared bit by bit, through `kintsugi ckpt convert`, `verify`, `diff` and `show`.
"""

import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import oracle
import states


class Kintsugi:
    def __init__(self, program):
        self.program = program

    def run(self, *arguments, code=0):
        done = subprocess.run([self.program, "ckpt", *map(str, arguments)], capture_output=True, text=True, check=False,
                              timeout=300)
        assert done.returncode == code, (arguments, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done

    def convert(self, source, destination, to, *more):
        self.run("convert", source, destination, "--to", to, *more)
        answer = json.loads(self.run("verify", destination, "--json").stdout)
        assert answer["ok"] and answer["has_checksums"], answer
        return destination

    def equal(self, left, right):
        answer = json.loads(self.run("diff", left, right, "--json").stdout)
        assert answer["equal"], answer
        return answer


def check_safetensors(torch, safetensors, kintsugi, rng, folder):
    dtypes = states.FLOATS + states.OTHERS
    state = states.flat_state(torch, rng, 120, dtypes)
    theirs = folder / "theirs.safetensors"
    safetensors.save_file(state, theirs, metadata={"format": "pt"})
    ours = kintsugi.convert(theirs, folder / "ours.safetensors", "safetensors")
    states.assert_equal_states(torch, state, safetensors.load_file(ours), "one file")
    shards = kintsugi.convert(theirs, folder / "hf", "safetensors", "--max-shard-size", "4096")
    index = json.loads((shards / "model.safetensors.index.json").read_text())
    found = {}
    for name in sorted(set(index["weight_map"].values())):
        found.update(safetensors.load_file(shards / name))
    states.assert_equal_states(torch, state, found, "shards")
    assert set(index["weight_map"]) == set(state) and len(set(index["weight_map"].values())) > 3
    assert kintsugi.equal(theirs, shards)["tensors"] == len(state)
    return len(state)


def check_torch(torch, kintsugi, rng, folder):
    state = states.nested_state(torch, rng)
    theirs = folder / "theirs.pt"
    torch.save(state, theirs)
    ours = kintsugi.convert(theirs, folder / "ours.pt", "torch")
    states.assert_equal_states(torch, state, torch.load(ours, weights_only=True), "weights_only")
    mapped = torch.load(ours, weights_only=True, mmap=True)
    states.assert_equal_states(torch, state, mapped, "mmap")
    assert mapped["optimizer"]["state"][0]["step"] == 7 and isinstance(mapped["optimizer"]["param_groups"], list)
    # Through a format that knows no objects, and back.
    safe = kintsugi.convert(ours, folder / "through.safetensors", "safetensors")
    back = kintsugi.convert(safe, folder / "back.pt", "torch")
    kintsugi.equal(theirs, back)
    check_old_torch(torch, kintsugi, state, theirs, folder)
    # 10,000 small tensors, of a type each.
    many = states.flat_state(torch, rng, 10000, states.FLOATS + states.OTHERS + states.ODD)
    torch.save(many, folder / "many.pt")
    ours = kintsugi.convert(folder / "many.pt", folder / "many-ours.pt", "torch")
    states.assert_equal_states(torch, many, torch.load(ours, weights_only=True), "many")
    return len(many)


def check_old_torch(torch, kintsugi, state, new, folder):
    """What torch.save wrote before 1.6: the same state, and whatever is cut off of it or put behind it is told."""
    old = folder / "old.pt"
    torch.save(state, old, _use_new_zipfile_serialization=False)
    kintsugi.equal(new, old)
    states.assert_equal_states(torch, state, torch.load(kintsugi.convert(old, folder / "old-ours.pt", "torch"), weights_only=True), "old form")
    base = torch.arange(12.)
    torch.save({"tail": base[4:], "turned": base.reshape(3, 4).t(), "again": base[4:]}, old, _use_new_zipfile_serialization=False)
    whole = old.read_bytes()
    found = torch.load(kintsugi.convert(old, folder / "old-views.pt", "torch"), weights_only=True)
    assert torch.equal(found["tail"], base[4:]) and torch.equal(found["turned"], base.reshape(3, 4).t()), found
    for size in (*range(0, len(whole), max(len(whole) // 40, 1)), len(whole) - 1):
        (folder / "cut.pt").write_bytes(whole[:size])
        assert kintsugi.run("show", folder / "cut.pt", code=1).stderr.strip(), size
    for behind, words in ((b"x", "1 bytes behind the last storage, are not read"), (whole, f"{len(whole)} bytes behind the last storage, another state, are not read")):
        (folder / "cut.pt").write_bytes(whole + behind)
        done = kintsugi.run("convert", folder / "cut.pt", folder / "old-behind.pt", "--to", "torch", "--overwrite")
        assert words in done.stderr, done.stderr
        states.assert_equal_states(torch, torch.load(folder / "cut.pt", weights_only=True), torch.load(folder / "old-behind.pt"), words)
    for what, words in ((re.sub(rb"(?<=little_endianq.)\x88", b"\x89", whole), "big-endian"),
                        (whole.replace(b"M\xe9\x03.", b"M\xea\x03."), "another version")):
        (folder / "cut.pt").write_bytes(what)
        said = kintsugi.run("show", folder / "cut.pt", code=1).stderr
        assert what != whole and words in said and "byte" in said, (words, said)


def check_dcp(torch, dcp, kintsugi, rng, folder):
    state = states.nested_state(torch, rng, states.OTHERS + states.ODD)
    for key in ("set", "nothing"):
        del state[key]  # DCP drops an empty dictionary
    dcp.save(state, checkpoint_id=folder / "theirs-dcp", no_dist=True)
    for shards in (1, 3):
        ours = kintsugi.convert(folder / "theirs-dcp", folder / f"ours-dcp-{shards}", "dcp", "--shards", shards)
        kintsugi.equal(folder / "theirs-dcp", ours)
        target = {}
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save  # pylint: disable=import-outside-toplevel
        dcp_to_torch_save(ours, folder / "from-dcp.pt")
        target = torch.load(folder / "from-dcp.pt", weights_only=False)
        states.assert_equal_states(torch, state, target, f"dcp of {shards}")
        # In place, as a trainer loads: into tensors that are there.
        weight = {"model": {"w": torch.zeros(6, 10), "rows": torch.zeros(4, 4, dtype=torch.bfloat16)}}
        dcp.load(weight, checkpoint_id=ours, no_dist=True)
        states.assert_equal_tensors(torch, state["model"]["w"], weight["model"]["w"], "in place")
        states.assert_equal_tensors(torch, state["model"]["rows"], weight["model"]["rows"], "in place")
    as_file = kintsugi.convert(folder / "ours-dcp-3", folder / "dcp.pt", "torch")
    states.assert_equal_states(torch, state, torch.load(as_file, weights_only=True), "dcp to torch")


DCP_RANK = """
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Shard, Replicate, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh
import datetime
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=4,
                        timeout=datetime.timedelta(seconds=240))
line = init_device_mesh("cpu", (4,))
grid = init_device_mesh("cpu", (2, 2))
torch.manual_seed(7)
whole = {"row": torch.randn(8, 6), "column": torch.randn(5, 12), "uneven": torch.randn(7, 3), "both": torch.randn(6, 10),
         "copy": torch.randn(4, 4), "moment": torch.randn(13, dtype=torch.float64)}
cuts = {"row": (line, [Shard(0)]), "column": (line, [Shard(1)]), "uneven": (line, [Shard(0)]),
        "both": (grid, [Shard(0), Shard(1)]), "copy": (line, [Replicate()]), "moment": (line, [Shard(0)])}
state = {name: distribute_tensor(whole[name], *cuts[name]) for name in whole}
state["step"] = 5
dcp.save({"state": state}, checkpoint_id=sys.argv[3])
if int(sys.argv[2]) == 0:
    torch.save({"state": {**whole, "step": 5}}, sys.argv[4])
dist.destroy_process_group()
"""


def check_dcp_of_ranks(torch, dcp, kintsugi, folder):
    meeting, saved, whole = folder / "meeting", folder / "ranks-dcp", folder / "whole.pt"
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", DCP_RANK, meeting, str(rank), saved, whole],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(4)]
    for process in ranks:
        text, _ = process.communicate(timeout=270)
        assert process.returncode == 0, text
    back = kintsugi.convert(saved, folder / "ranks.pt", "torch")
    state = torch.load(whole, weights_only=True)
    states.assert_equal_states(torch, state, torch.load(back, weights_only=True), "4 ranks")
    shown = json.loads(kintsugi.run("show", saved).stdout)
    pieces = {t["key"]: t["pieces"] for t in shown["tensors"]}
    assert pieces["state.both"] == 4 and pieces["state.row"] == 4, pieces


def check_tied(torch, safetensors, dcp, kintsugi, folder):
    """Tied weights are one copy, under the names that each library asks for."""
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.norm = torch.nn.Embedding(64, 32), torch.nn.Linear(32, 32)
            self.output = torch.nn.Linear(32, 64, bias=False)
            self.output.weight = self.embedding.weight

    def loaded(found, place):
        model = Tied()
        torch.nn.init.zeros_(model.embedding.weight)
        model.load_state_dict(found)
        states.assert_equal_states(torch, net.state_dict(), model.state_dict(), place)

    def alias(path):
        shown = json.loads(kintsugi.run("show", path).stdout)
        assert [t.get("alias_of") for t in shown["tensors"] if t["key"] == "output.weight"] == ["embedding.weight"], shown
        return shown["bytes"]

    net = Tied()
    torch.save(net.state_dict(), folder / "tied.pt")
    size = alias(folder / "tied.pt")
    safetensors.save_model(net, folder / "tied-theirs.safetensors")
    assert alias(folder / "tied-theirs.safetensors") == size
    kintsugi.equal(folder / "tied.pt", folder / "tied-theirs.safetensors")
    ours = kintsugi.convert(folder / "tied.pt", folder / "tied.safetensors", "safetensors")
    model = Tied()
    missing, unexpected = safetensors.load_model(model, ours)
    assert not missing and not unexpected, (missing, unexpected)
    states.assert_equal_states(torch, net.state_dict(), model.state_dict(), "load_model")
    for shards in (1, 2):
        place = kintsugi.convert(ours, folder / f"tied-dcp-{shards}", "dcp", "--shards", shards)
        alias(place)
        found = {name: torch.zeros_like(value) for name, value in net.state_dict().items()}
        found["output.weight"] = torch.zeros(64, 32)  # each name is asked for by itself
        dcp.load(found, checkpoint_id=place, no_dist=True)
        loaded(found, "dcp")
    back = torch.load(kintsugi.convert(folder / "tied-dcp-2", folder / "tied-back.pt", "torch"), weights_only=True)
    assert back["output.weight"].data_ptr() == back["embedding.weight"].data_ptr()
    loaded(back, "torch")
    assert (folder / "tied-back.pt").stat().st_size < (folder / "tied.pt").stat().st_size + 4096
    # The same state by its digests, whatever holds it, and also when the first is gone.
    digests = folder / "tied-digests.json"
    digests.write_text(kintsugi.run("show", folder / "tied-theirs.safetensors", "--digests").stdout)
    for evidence in (folder / "tied.pt", digests):
        answer = json.loads(kintsugi.run("verify", folder / "tied-dcp-2", "--against", evidence, "--json").stdout)
        assert answer["ok"] and answer["against"] == {"equal": 3, "other": [], "missing": [], "more": 0}, answer
    net.norm.bias.data[7] += 1
    torch.save(net.state_dict(), folder / "tied-other.pt")
    assert "'norm.bias' is another" in kintsugi.run("verify", folder / "tied-other.pt", "--against", digests, code=1).stderr


def check_diff(torch, kintsugi, folder):
    left = {"a": torch.arange(12.).reshape(3, 4), "b": torch.ones(3), "gone": torch.ones(1), "shape": torch.ones(2)}
    right = {"a": left["a"].clone(), "b": torch.ones(3, dtype=torch.float64), "new": torch.ones(1), "shape": torch.ones(3)}
    right["a"][1, 2] += 0.5
    right["a"][2, 0] -= 4
    torch.save(left, folder / "left.pt")
    torch.save(right, folder / "right.pt")
    answer = json.loads(kintsugi.run("diff", folder / "left.pt", folder / "right.pt", "--json", code=1).stdout)
    found = {d["key"]: d for d in answer["differences"]}
    assert {k: d["kind"] for k, d in found.items()} == {"a": "values", "b": "dtype", "gone": "only_left",
                                                        "new": "only_right", "shape": "shape"}, found
    assert found["a"]["first"] == [1, 2] and found["a"]["elements"] == 2 and found["a"]["largest"] == 4, found["a"]


def check_casts_and_names(torch, safetensors, kintsugi, rng, folder):
    state = {"model.w": torch.randn(64, 32), "model.ids": torch.arange(9), "opt.m": torch.randn(8)}
    torch.save(state, folder / "cast.pt")
    ours = kintsugi.convert(folder / "cast.pt", folder / "cast.safetensors", "safetensors", "--dtype", "bf16", "--only",
                            "model.*")
    found = safetensors.load_file(ours)
    assert set(found) == {"model.w", "model.ids"}
    states.assert_equal_tensors(torch, state["model.w"].to(torch.bfloat16), found["model.w"], "cast")
    states.assert_equal_tensors(torch, state["model.ids"], found["model.ids"], "not cast")
    program = folder / "program.aoa"
    program.write_text("model.w -> up, down, axis=0\nopt.m -> _\n")
    ours = kintsugi.convert(folder / "cast.pt", folder / "aoa.safetensors", "safetensors", "--aoa", program)
    found = safetensors.load_file(ours)
    states.assert_equal_tensors(torch, state["model.w"][:32], found["up"], "split")
    states.assert_equal_tensors(torch, state["model.w"][32:], found["down"], "split")
    assert "opt.m" not in found and "model.ids" in found, sorted(found)


def check_types_without_casts(torch, kintsugi, folder):
    """Types that are stored and moved only: safetensors lacks one, and no cast is made up."""
    torch.save({"half": torch.zeros(2, dtype=torch.complex32), "ids": torch.ones(3, dtype=torch.uint16)}, folder / "odd.pt")
    done = kintsugi.run("convert", folder / "odd.pt", folder / "odd.safetensors", "--to", "safetensors", code=2)
    assert "complex32" in done.stderr and "'half'" in done.stderr, done.stderr
    program = folder / "cast.aoa"
    program.write_text("ids -> ids, dtype='float32'\n")
    done = kintsugi.run("convert", folder / "odd.pt", folder / "cast-out.pt", "--to", "torch", "--aoa", program, code=2)
    assert "there is no cast from uint16 to float32" in done.stderr, done.stderr
    kept = kintsugi.convert(folder / "odd.pt", folder / "kept.pt", "torch", "--dtype", "bf16")
    assert torch.load(kept, weights_only=True)["ids"].dtype == torch.uint16
    torch.save({"ids": torch.tensor([1, 65535, 1], dtype=torch.uint16), "half": torch.zeros(2, dtype=torch.complex32)},
               folder / "even.pt")
    answer = json.loads(kintsugi.run("diff", folder / "odd.pt", folder / "even.pt", "--json", code=1).stdout)
    assert [(d["key"], d["largest"]) for d in answer["differences"]] == [("ids", 65534)], answer


def check_refusals(torch, kintsugi, folder):
    class Evil:
        def __reduce__(self):
            import os  # pylint: disable=import-outside-toplevel
            return os.system, (f"touch {folder}/executed",)

    torch.save({"w": torch.ones(2), "evil": Evil()}, folder / "evil.pt")
    done = kintsugi.run("convert", folder / "evil.pt", folder / "evil-out.safetensors", "--to", "safetensors", code=2)
    assert "system" in done.stderr and "byte" in done.stderr and "--skip-objects" in done.stderr, done.stderr
    kintsugi.convert(folder / "evil.pt", folder / "evil-out.safetensors", "safetensors", "--skip-objects")
    done = kintsugi.run("convert", folder / "evil.pt", folder / "evil-out.pt", "--to", "torch")  # as all that weights_only refuses
    assert "left out: object 'evil'" in done.stderr and "system" in done.stderr, done.stderr
    assert not (folder / "executed").exists() and set(torch.load(folder / "evil-out.pt", weights_only=True)) == {"w"}
    whole = (folder / "left.pt").read_bytes()
    for size in range(0, len(whole), 512):
        (folder / "torn.pt").write_bytes(whole[:size])
        kintsugi.run("show", folder / "torn.pt", code=1)
    # One flipped bit of a tensor: found by the zip's own CRC, and by our sidecar.
    ours = folder / "ours.pt"
    damaged = bytearray(ours.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    ours.write_bytes(damaged)
    assert "written was" in kintsugi.run("verify", ours, code=1).stderr
    assert not [path for path in folder.iterdir() if ".unfinished-" in path.name]


def main():
    torch, safetensors, dcp = oracle.need("torch", "safetensors.torch", "torch.distributed.checkpoint")
    torch.set_num_threads(1)
    kintsugi = Kintsugi(sys.argv[1])
    rng = random.Random(20261122)
    with tempfile.TemporaryDirectory(prefix="kintsugi-formats-") as name:
        folder = pathlib.Path(name)
        flat = check_safetensors(torch, safetensors, kintsugi, rng, folder)
        many = check_torch(torch, kintsugi, rng, folder)
        check_dcp(torch, dcp, kintsugi, rng, folder)
        check_dcp_of_ranks(torch, dcp, kintsugi, folder)
        check_tied(torch, safetensors, dcp, kintsugi, folder)
        check_diff(torch, kintsugi, folder)
        check_casts_and_names(torch, safetensors, kintsugi, rng, folder)
        check_types_without_casts(torch, kintsugi, folder)
        check_refusals(torch, kintsugi, folder)
    print(f"safetensors ({flat} tensors), torch.save ({many}), DCP of one and of 4 ranks: both ways, bit for bit")


if __name__ == "__main__":
    main()
