#!/usr/bin/env python3
"""DeepSpeed's and Paddle's checkpoints against these libraries: written by them and read by us, and the other way round.

    large_formats_test.py KINTSUGI

Behind ./tools/test --oracles: the libraries are large (build/oracles, made by ./tools/setup --oracles), and each run of
DeepSpeed takes a minute. Compared bit by bit.
"""

import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile

import oracle
import states
from checkpoint_formats_test import Kintsugi

LIBRARIES = pathlib.Path(__file__).resolve().parents[2] / "build" / "oracles"

# A run's values (callbacks/state/values.h), as a .pt of ours or of torch's holds them.
VALUES = {"consumed_samples": 2**40 + 1, "opt_param_scheduler": {"num_steps": 96, "max_lr": 0.1, "style": "cosine"},
          "data": {"epoch": -3, "is_shuffled": True}, "best_loss": float("-inf"), "note": "käse", "unset": None}

DEEPSPEED_RANK = """
import json, os, sys, torch
order, rank, world, port = sys.argv[1:5]
os.environ.update(RANK=rank, LOCAL_RANK="0", WORLD_SIZE=world, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
stage, source, saved = order.split(",")
import deepspeed
torch.manual_seed(1 if not source else 2)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(5, 7), torch.nn.Linear(7, 3, bias=False)
        self.register_buffer("buf", torch.arange(4.) * (1 if not source else 0))
        self.frozen = torch.nn.Parameter(torch.randn(3, 3), requires_grad=False)
        self.tied = torch.nn.Linear(7, 3, bias=False)
        self.tied.weight = self.b.weight
    def forward(self, x):
        return (self.b(torch.relu(self.a(x))) + self.tied(torch.ones_like(x[:, :1]).expand(-1, 7))).sum()

net = Net()
adam = torch.optim.AdamW([{"params": [net.a.weight, net.b.weight]}, {"params": [net.a.bias], "weight_decay": 0.0}], lr=1e-2)
config = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "zero_allow_untested_optimizer": True,
          "zero_optimization": {"stage": 1 if stage == "bf16" else int(stage)}}
if stage == "bf16":  # gradients in float32: BF16_Optimizer in the place of stage 1's
    config["data_types"] = {"grad_accum_dtype": "fp32"}
if source.endswith("universal"):
    config["checkpoint"] = {"load_universal": True}
engine = deepspeed.initialize(model=net, optimizer=adam, config=config)[0]
if source:
    loaded, state = engine.load_checkpoint(source)
    assert loaded and state["mine"] == 5, (loaded, state)
    plain = {key: state[key] for key in sys.argv[5:] if key in state}
    print("SEEN", json.dumps([engine.global_steps, engine.global_samples, plain]))
else:
    for _ in range(3):
        engine.backward(engine(torch.randn(2, 5, dtype=torch.bfloat16)))
        engine.step()
engine.save_checkpoint(saved, tag="global_step3", client_state={"mine": 5})
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment():
    return {**os.environ, "PYTHONPATH": str(LIBRARIES), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}


def run_deepspeed(stage, source, saved, world=2, seen=None):
    """Trains three steps, or loads `source`; then saves. `seen` gets what each rank found there beside tensors."""
    order, port = f"{stage},{source or ''},{saved}", str(free_port())
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", DEEPSPEED_RANK, order, str(rank), str(world), port,
                               *VALUES],
                              env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for rank in range(world)]
    for process in ranks:
        text, _ = process.communicate(timeout=550)
        assert process.returncode == 0, text[-4000:]
        if seen is not None:
            seen += [json.loads(line[5:]) for line in text.splitlines() if line.startswith("SEEN ")]
    return saved


def only_layout(kintsugi, left, right, *more):
    """Equal but for what a run says of itself anew, and for `more`."""
    done = subprocess.run([kintsugi.program, "ckpt", "diff", left, right, "--json"], capture_output=True, text=True,
                          check=False, timeout=120)
    answer = json.loads(done.stdout)
    ours = ("ds_config", "optimizer_state.", "global_samples", "ds_version", "loss_scaler", "universal_checkpoint_info",
            "skipped_steps", "num_experts", *more)
    found = [d for d in answer["differences"] if not d["key"].startswith(ours) and not d["key"].endswith(":cat_dim")]
    assert not found and answer["tensors"] >= 13, (left, right, found)


def with_values(kintsugi, source, folder, name):
    """The same checkpoint with a run's values in it, as a .pt."""
    code = ("import sys, torch; state = torch.load(sys.argv[1], weights_only=False); "  # some of it are DeepSpeed's classes
            "torch.save({**state, **eval(sys.argv[3], {'inf': float('inf')})}, sys.argv[2])")
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, kintsugi.convert(source, folder / f"{name}-plain.pt", "torch"),
                    folder / f"{name}-values.pt", repr(VALUES)], env=environment(), check=True, capture_output=True, timeout=300)
    return folder / f"{name}-values.pt"


def check_deepspeed_values(kintsugi, saved, folder):
    """DeepSpeed's own load hands them to the trainer, and takes for its own what it has a name for."""
    source = with_values(kintsugi, saved, folder, "deepspeed")
    for form, stage, world in (("deepspeed", 2, 2), ("deepspeed-universal", 1, 1)):
        ours, seen = kintsugi.convert(source, folder / f"values-{form}", form, *(["--shards", world] * (world > 1))), []
        if form == "deepspeed-universal":
            ours = ours.rename(ours.with_name("values-universal"))
        run_deepspeed(stage, ours, folder / f"values-{form}-again", world, seen)
        assert len(seen) == world, seen
        for steps, samples, state in seen:
            assert steps == 3 and samples == VALUES["consumed_samples"], (form, steps, samples)
            for key in set(VALUES) - {"consumed_samples"}:
                assert key in state and state[key] == VALUES[key] and type(state[key]) is type(VALUES[key]), (form, key, state)


def check_bf16_optimizer(torch, kintsugi, saved, folder):
    """Its files say no stage. What lies where they say themselves, and their optimizer loads ours."""
    code = ("import glob, sys, torch; states = [torch.load(n, weights_only=False)['optimizer_state_dict'] for n in sorted(glob.glob(sys.argv[1]))]; "
            "assert len(states) == 2 and not any('zero_stage' in s for s in states); parts = {}; "
            "[parts.setdefault(name, []).append((s['single_partition_of_fp32_groups'][g][a.start:a.start + a.numel], "
            "s['base_optimizer_state']['state'][g]['exp_avg'][a.start:a.start + a.numel])) "
            "for s in states for g, m in enumerate(s['param_slice_mappings']) for name, a in m.items()]; "
            "torch.save({name: [torch.cat(x).clone() for x in zip(*p)] for name, p in parts.items()}, sys.argv[2])")
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, saved / "global_step3/bf16_zero_pp_rank_*", folder / "bf16-parts.pt"],
                   env=environment(), check=True, capture_output=True, timeout=300)
    ours = torch.load(kintsugi.convert(saved, folder / "bf16.pt", "torch", "--only", "zero.*"), weights_only=True)["zero"]
    theirs = torch.load(folder / "bf16-parts.pt", weights_only=True)
    assert set(ours) == set(theirs) == {"a.weight", "a.bias", "b.weight"}, (set(ours), set(theirs))
    for name, (master, moment) in theirs.items():
        states.assert_equal_tensors(torch, master, ours[name]["fp32"].reshape(-1), (name, "fp32"))
        states.assert_equal_tensors(torch, moment, ours[name]["exp_avg"].reshape(-1), (name, "exp_avg"))
    again = kintsugi.convert(saved, folder / "bf16-ours", "deepspeed", "--shards", "2", "--zero-stage", "1")
    only_layout(kintsugi, saved, run_deepspeed("bf16", again, folder / "bf16-again"))


def check_stage_three(torch, kintsugi, saved, folder):
    """DeepSpeed's tools take ours: zero_to_fp32 the same weights as of its own, ds_to_universal the same states; and its engine goes on from it."""
    code = ("import sys, torch; from types import SimpleNamespace as N; from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint as g; "
            "from deepspeed.checkpoint.ds_to_universal import main; torch.save({k: v.clone() for k, v in g(sys.argv[1]).items()}, sys.argv[2]); "
            "main(N(input_folder=sys.argv[1] + '/global_step3', output_folder=sys.argv[3], num_extract_workers=1, num_merge_workers=1, "
            "keep_temp_folder=False, strict=True, inject_missing_state=False))")
    found = []
    for what, ranks, root in (("theirs", 2, saved), ("ours", 2, None), ("ours", 3, None)):
        root = root or kintsugi.convert(saved, folder / f"cut{ranks}", "deepspeed", "--shards", ranks, "--zero-stage", "3")
        weights, universal = folder / f"weights-{what}{ranks}.pt", folder / f"universal-{what}{ranks}"
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, root, weights, universal], env=environment(), check=False, capture_output=True,
                              text=True, timeout=300)
        assert done.returncode == 0, (what, ranks, done.stderr[-3000:])
        # Of stage 3 a bare flat tensor each.
        states_of = {path.relative_to(universal).as_posix(): torch.load(path, weights_only=False) for path in universal.glob("zero/*/*.pt")}
        only_layout(kintsugi, saved, universal, "dp_world_size", *(f"zero.{name}.step" for name in ("a.weight", "a.bias", "b.weight")))  # which it leaves out
        found.append((torch.load(weights, weights_only=True), states_of))
    for weights, states_of in found[1:]:
        for mine, theirs in ((weights, found[0][0]), (states_of, found[0][1])):
            assert mine.keys() == theirs.keys(), mine.keys() ^ theirs.keys()
            for name, value in theirs.items():
                states.assert_equal_tensors(torch, value, mine[name], name)
    only_layout(kintsugi, saved, run_deepspeed(3, folder / "cut2", folder / "cut-again"), "module.", "dp_world_size")


def check_deepspeed(torch, kintsugi, folder):
    saved = {stage: run_deepspeed(stage, None, folder / f"stage{stage}") for stage in (1, 2, 3, "bf16")}
    check_bf16_optimizer(torch, kintsugi, saved.pop("bf16"), folder)
    code = ("import sys, torch; from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint as g; "
            "torch.save({k: v.clone() for k, v in g(sys.argv[1]).items()}, sys.argv[2])")
    for stage, root in saved.items():
        subprocess.run([sys.executable, "-W", "ignore", "-c", code, root, folder / "fp32.pt"], env=environment(),
                       check=True, capture_output=True, timeout=300)
        theirs = torch.load(folder / "fp32.pt", weights_only=True)
        ours = kintsugi.convert(root, folder / f"stage{stage}.pt", "torch", "--only", "zero.*", "--only", "module.*")
        ours = torch.load(ours, weights_only=True)
        for name, value in theirs.items():
            owner = "b.weight" if name == "tied.weight" else name  # tied: one set of states
            found = ours["zero"][owner]["fp32"] if owner in ours["zero"] else ours["module"][owner].float()
            states.assert_equal_tensors(torch, value.float(), found, (stage, name))
        shown = json.loads(kintsugi.run("show", root).stdout)
        assert [t.get("alias_of") for t in shown["tensors"] if t["key"] == "module.tied.weight"] == ["module.b.weight"], stage
    only_layout(kintsugi, saved[1], saved[2])
    check_deepspeed_values(kintsugi, saved[2], folder)
    # Through other ranks and another stage of ours, and into DeepSpeed, which saves what it loaded.
    through = kintsugi.convert(saved[3], folder / "three", "deepspeed", "--shards", "3", "--zero-stage", "1")
    ours = kintsugi.convert(through, folder / "ours", "deepspeed", "--shards", "2", "--zero-stage", "2")
    # What DeepSpeed saves of the model is of its own type again: the master's, rounded.
    only_layout(kintsugi, saved[3], run_deepspeed(2, ours, folder / "again"), "module.", "dp_world_size")
    only_layout(kintsugi, saved[2], run_deepspeed(2, kintsugi.convert(saved[2], folder / "two", "deepspeed", "--shards", "2"),
                                                  folder / "two-again"))
    check_stage_three(torch, kintsugi, saved[3], folder)
    # Universal: theirs is ours, and ours is loaded at another number of ranks.
    universal = folder / "stage2" / "global_step3_universal"
    code = ("import sys; from types import SimpleNamespace as N; from deepspeed.checkpoint.ds_to_universal import main; "
            "main(N(input_folder=sys.argv[1], output_folder=sys.argv[2], num_extract_workers=1, num_merge_workers=1, "
            "keep_temp_folder=False, strict=True, inject_missing_state=True))")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, folder / "stage2" / "global_step3", universal],
                          env=environment(), check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    only_layout(kintsugi, saved[2], universal)
    ours = kintsugi.convert(saved[2], folder / "ours-universal", "deepspeed-universal")
    only_layout(kintsugi, ours, universal)
    # Both keep fp32 copies of what no optimizer has, in files of the same names.
    theirs = sorted(path.relative_to(universal) for path in universal.glob("zero/*/fp32.pt"))
    written = next(ours.glob("global_step*_universal"))  # beside latest_universal
    assert theirs == sorted(path.relative_to(written) for path in written.glob("zero/*/fp32.pt")), theirs
    assert {path.parent.name for path in theirs} >= {"buf", "frozen", "tied.weight"}, theirs
    for path in theirs:
        if path.parent.name in ("buf", "frozen", "tied.weight"):
            left, right = (torch.load(root / path, weights_only=True)["param"] for root in (universal, written))
            states.assert_equal_tensors(torch, left, right, path)
    # What was read from theirs is no larger a set of parameters than DeepSpeed's own.
    onwards = kintsugi.convert(universal, folder / "from-theirs", "deepspeed", "--shards", "2")
    only_layout(kintsugi, saved[2], run_deepspeed(2, onwards, folder / "from-theirs-again"))
    # Its load takes parameters and optimizer from there; buffers and frozen parameters stay the trainer's own.
    only_layout(kintsugi, saved[2], run_deepspeed(1, ours, folder / "from-universal", world=1), "module.buf",
                "module.frozen", "dp_world_size")


PADDLE = """
import sys, numpy, paddle, paddle.distributed as dist
mode, folder, arrays = sys.argv[1:4]
wanted = dict(numpy.load(arrays))
def tensor(name, array):
    if name.startswith("float8"):
        return paddle.to_tensor(array.view("int8")).view(name.split(".")[0]) if array.size else \
            paddle.zeros(array.shape).astype(name.split(".")[0])
    if name.startswith("bfloat16"):
        return paddle.to_tensor(array.view("uint16"), dtype="bfloat16") if array.size else paddle.zeros(array.shape, "bfloat16")
    return paddle.to_tensor(array)
if mode == "unsigned":  # what it saves and cannot load
    dist.save_state_dict({kind: paddle.to_tensor([1, 2, 3]).astype(getattr(paddle, kind)) for kind in ("uint32", "uint64")}, folder)
elif mode == "save":
    state = {}
    for name, array in wanted.items():
        state.setdefault("model", {}).setdefault("inner", {})[name] = tensor(name, array)
    dist.save_state_dict(state, folder)
elif mode == "values":
    # Its loader takes tensors alone: numbers and flags are such, without axes; texts are nowhere.
    wanted = eval(sys.argv[4], {"inf": float("inf")})
    numbers = {name: value for name, value in wanted.items() if isinstance(value, (bool, int, float))}
    kinds = {bool: "bool", int: "int64", float: "float64"}
    state = {name: paddle.zeros([], kinds[type(value)]) for name, value in numbers.items()}
    state["model.inner.large"] = paddle.zeros([100, 1000])
    dist.load_state_dict(state, folder)
    for name, value in numbers.items():
        assert state[name].item() == value and str(state[name].dtype) == "paddle." + kinds[type(value)], (name, state[name])
    assert numpy.asarray(state["model.inner.large"]).tobytes() == dict(numpy.load(arrays))["large"].tobytes()
    file = paddle.load(folder + "/0_0.distcp")
    assert {name: file[name].item() for name in numbers} == numbers, file
else:
    state = {"model.inner." + name: paddle.zeros(array.shape).astype(name.split(".")[0]) if name.startswith("float8") else
             paddle.zeros_like(tensor(name, array)) for name, array in wanted.items()}
    dist.load_state_dict(state, folder)
    for name, array in wanted.items():
        found = state["model.inner." + name]
        assert list(found.shape) == list(array.shape), (name, found.shape)
        if mode == "load":
            assert numpy.asarray(found).tobytes() == numpy.asarray(tensor(name, array)).tobytes(), name
"""


def check_paddle(torch, numpy, kintsugi, rng, folder):
    kinds = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64"]
    arrays = {}
    named = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}  # NumPy has none of them
    for number, kind in enumerate((kinds + list(named)) * 3):
        shape = [rng.randrange(1, 9) for _ in range(rng.randrange(0, 4))]
        raw = named.get(kind, kind)
        size = int(numpy.prod(shape)) * numpy.dtype(raw).itemsize
        array = numpy.frombuffer(rng.randbytes(size), dtype="uint8")
        array = (array % 2).astype("bool") if kind == "bool" else array.view(raw)
        arrays[f"{kind}.{number}"] = array.reshape(shape)
    arrays["large"] = numpy.frombuffer(rng.randbytes(400000), dtype="float32").reshape(100, 1000)
    numpy.savez(folder / "arrays.npz", **arrays)

    def paddle(mode, root, *more):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", PADDLE, mode, root, folder / "arrays.npz", *more],
                              env=environment(), check=False, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]

    paddle("save", folder / "theirs-paddle")
    found = torch.load(kintsugi.convert(folder / "theirs-paddle", folder / "paddle.pt", "torch"), weights_only=True)
    found = found["model"]["inner"]
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert states.bits(torch, found[name]) == array.tobytes(), name
        assert str(found[name].dtype) == "torch." + ("float32" if name == "large" else name.split(".")[0]), name
    paddle("unsigned", folder / "unsigned-paddle")
    unsigned = torch.load(kintsugi.convert(folder / "unsigned-paddle", folder / "unsigned.pt", "torch"), weights_only=True)
    for kind in ("uint32", "uint64"):
        assert unsigned[kind].dtype == getattr(torch, kind) and unsigned[kind].tolist() == [1, 2, 3], unsigned
    done = kintsugi.run("convert", folder / "unsigned.pt", folder / "no", "--to", "paddle", code=2)
    assert "uint32" in done.stderr and "Paddle does not load" in done.stderr, done.stderr
    for shards in (1, 3):
        ours = kintsugi.convert(folder / "paddle.pt", folder / f"ours-paddle-{shards}", "paddle", "--shards", shards)
        kintsugi.equal(folder / "theirs-paddle", ours)
        paddle("load", ours)
    # Through a native one, where they are one object, as a run saves them.
    native = kintsugi.convert(with_values(kintsugi, folder / "theirs-paddle", folder, "paddle"), folder / "values-native", "native")
    flat = {}
    for key, value in VALUES.items():
        flat.update({f"{key}.{inner}": one for inner, one in value.items()} if isinstance(value, dict) else {key: value})
    for shards in (1, 2):
        ours = kintsugi.convert(native, folder / f"values-paddle-{shards}", "paddle", "--shards", shards)
        kintsugi.equal(native, ours)
        paddle("values", ours, repr(flat))


def main():
    if not LIBRARIES.is_dir():
        print("SKIPPED: there is no build/oracles; ./tools/setup --oracles makes it")
        sys.exit(oracle.SKIPPED)
    torch, numpy = oracle.need("torch", "numpy")
    torch.set_num_threads(1)
    kintsugi = Kintsugi(sys.argv[1])
    only = sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="kintsugi-large-formats-") as name:
        folder = pathlib.Path(name)
        if not only or "paddle" in only:
            check_paddle(torch, numpy, kintsugi, random.Random(20261122), folder)
        if not only or "deepspeed" in only:
            check_deepspeed(torch, kintsugi, folder)
        if "stage-three" in only:
            check_stage_three(torch, kintsugi, run_deepspeed(3, None, folder / "stage3"), folder)
    print("DeepSpeed ZeRO 1 to 3, Universal and Paddle: both ways, bit for bit")


if __name__ == "__main__":
    main()
