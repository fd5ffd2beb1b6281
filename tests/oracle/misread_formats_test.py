#!/usr/bin/env python3
"""What is easily read wrong of checkpoints that other libraries write: right as the library has it, or refused by name.

    misread_formats_test.py KINTSUGI

Each of these was once taken for something else, with exit code 0.
"""

import collections
import json
import os
import pathlib
import shutil
import sys
import tempfile
import zipfile

import oracle
import states
from checkpoint_formats_test import Kintsugi


def refused(kintsugi, words, *arguments, code=(1, 2)):
    for possible in code:
        try:
            said = kintsugi.run(*arguments, code=possible).stderr
            break
        except AssertionError:
            if possible == code[-1]:
                raise
    for word in words:
        assert word in said, (word, said)


def check_views(torch, dcp, kintsugi, folder):
    """conj() and neg views are stored as what they are views of: they come out as they are read."""
    generator = torch.Generator().manual_seed(5)
    whole = torch.randn(5, 7, 4, dtype=torch.complex64, generator=generator)
    plain = whole.clone()  # torch's own kernels are of two minds about the sign of zero in a view that is both
    whole[0, 0] = torch.tensor([complex(0.0, -0.0), complex(-0.0, 0.0), complex(float("inf"), float("nan")), 0])
    views = {"conj": whole.conj(), "conj.strided": whole.conj()[1:4, ::2].transpose(0, 2), "neg": whole.clone().conj().imag, "both": torch._neg_view(plain.conj()),
             "double": whole.to(torch.complex128).conj(), "half": torch._neg_view(torch.randn(3, 3, generator=generator).half()),
             "empty": whole[:0].conj(), "scalar": whole[2, 3, 1].conj(), "w": torch.ones(2)}
    assert views["both"].is_conj() and views["neg"].is_neg()
    torch.save(views, folder / "views.pt")
    dcp.save(dict(views), checkpoint_id=folder / "views", no_dist=True)
    for source in (folder / "views.pt", folder / "views"):
        for form in ("torch", "native"):
            made = kintsugi.convert(source, folder / f"{source.name}-{form}", form)
            found = torch.load(made if form == "torch" else kintsugi.convert(made, folder / f"{source.name}-again.pt", "torch"))
            for key, view in views.items():
                expected = view.resolve_conj().resolve_neg().contiguous()
                assert found[key].dtype == expected.dtype and found[key].shape == expected.shape, (source, key)
                assert torch.equal(found[key].view(torch.uint8) if expected.dim() else found[key].reshape(1).view(torch.uint8),
                                   expected.view(torch.uint8) if expected.dim() else expected.reshape(1).view(torch.uint8)), (source, key)
    # torch negates whole numbers too, which have no sign of their own to flip.
    torch.save({"view": torch._neg_view(torch.arange(3)), "w": torch.ones(2)}, folder / "whole.pt")
    refused(kintsugi, ("tensor 'view'", "negated view of int64"), "convert", folder / "whole.pt", folder / "whole-out.pt", "--to", "torch")
    assert set(torch.load(kintsugi.convert(folder / "whole.pt", folder / "whole-kept.pt", "torch", "--only", "w"))) == {"w"}
    assert "tensor 'view'" in json.loads(kintsugi.run("show", folder / "whole.pt").stdout)["notes"][0]
    # Attributes of a parameter are no other tensor.
    parameter = torch.nn.Parameter(torch.arange(3.))
    parameter.tag = "x"
    torch.save({"p": parameter}, folder / "parameter.pt")
    found = torch.load(kintsugi.convert(folder / "parameter.pt", folder / "parameter-out.pt", "torch"))
    assert torch.equal(found["p"], parameter.data), found


def check_shards(torch, safetensors, kintsugi, folder):
    """A rank's file of DCP's HuggingFaceStorageWriter."""
    whole = torch.arange(40.).reshape(10, 4)
    place = folder / "by-rank"
    place.mkdir()
    for rank, (begin, end) in enumerate(((0, 3), (3, 6), (6, 10))):
        info = {"w": {"saved_offsets": [begin, 0]}, f"only.{rank}": {"saved_offsets": [0]}}
        safetensors.save_file({"w": whole[begin:end].contiguous(), f"only.{rank}": torch.full((2,), float(rank))},
                              place / f"shard-{rank:05d}-model-00001-of-00001.safetensors",
                              metadata={"DCP_SHARDING_INFO": json.dumps(info), "DCP_VERSION": "1.0", "format": "pt"})
    found = torch.load(kintsugi.convert(place, folder / "by-rank.pt", "torch"))
    assert torch.equal(found["w"], whole) and set(found) == {"w", "only.0", "only.1", "only.2"}, found
    # A box that two files hold, as of a second save with another number of ranks: HuggingFaceStorageReader takes either.
    info = {"w": {"saved_offsets": [3, 0]}}
    for name, more, words in (("again", 0., None), ("other", 1., ("'w' float32 [10, 4]", "[3, 4] at [3, 0]", "shard-00001-", "shard-00007-", "two saves"))):
        shutil.copytree(place, folder / name)
        safetensors.save_file({"w": whole[3:6] + more}, folder / name / "shard-00007-model-00001-of-00001.safetensors",
                              metadata={"DCP_SHARDING_INFO": json.dumps(info), "DCP_VERSION": "1.0", "format": "pt"})
        if words:
            refused(kintsugi, words, "show", folder / name)
        else:
            assert torch.equal(torch.load(kintsugi.convert(folder / name, folder / "again.pt", "torch"))["w"], whole)
    for rank in (0, 1):  # the first one's offsets are zeros
        refused(kintsugi, ("one rank's shard", "DCP_SHARDING_INFO", "folder"), "show", place / f"shard-{rank:05d}-model-00001-of-00001.safetensors")
    os.rename(place / "shard-00001-model-00001-of-00001.safetensors", folder / "model.safetensors")
    refused(kintsugi, ("'w'",), "show", place)
    refused(kintsugi, ("one rank's shard",), "show", folder / "model.safetensors")


def save_zero(torch, place, buffer, mapping, module, shapes, config, stage=True, steps=None, groups=()):
    tag = place / "global_step1"
    tag.mkdir(parents=True)
    (place / "latest").write_text("global_step1")
    torch.save({"module": module, "param_shapes": [shapes], "buffer_names": [], "shared_params": {}, "frozen_param_shapes": None, "frozen_param_fragments": None,
                "dp_world_size": len(buffer), "mp_world_size": 1, "ds_version": "0.19.8", "ds_config": {"zero_optimization": config}, "global_steps": 1},
               tag / "mp_rank_00_model_states.pt")
    for rank, part in enumerate(buffer):
        state = {"zero_stage": 1, "partition_count": [len(buffer)], "single_partition_of_fp32_groups": [part], "base_optimizer_state": {"state": {0: {"exp_avg": part * 10}}, "param_groups": [groups[rank]] if groups else []}}
        if steps:
            state["base_optimizer_state"]["state"][0]["step"] = steps[rank]
        if not stage:
            del state["zero_stage"]
        if mapping:
            state["param_slice_mappings"] = [collections.OrderedDict((name, {"numel": numel, "start": start}) for name, numel, start in mapping[rank])]
        torch.save({"optimizer_state_dict": state}, tag / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


def check_zero(torch, kintsugi, folder):
    """Flat buffers lie as param_shapes says, and whatever says it a second time has to agree."""
    shapes = collections.OrderedDict(b=torch.Size([2]), a=torch.Size([3]))
    module = {"a": torch.full((3,), 1.).bfloat16(), "b": torch.full((2,), 2.).bfloat16()}
    row = torch.tensor([2., 2, 1, 1, 1, 0])
    halves, agrees = [row[:4].clone(), row[4:].clone()], [[("b", 2, 0), ("a", 2, 2)], [("a", 1, 0)]]
    other = [[("a", 3, 0), ("b", 1, 3)], [("b", 1, 0)]]
    for name, mapping, config in (("agrees", agrees, {"stage": 1}), ("stageless", agrees, {"stage": 1}), ("none", None, {"stage": 1}), ("round-robin", other, {"stage": 1, "round_robin_gradients": True})):
        save_zero(torch, folder / name, halves, mapping, module, shapes, config, stage=name != "stageless")  # BF16_Optimizer says none
        found = torch.load(kintsugi.convert(folder / name, folder / f"{name}.pt", "torch"))
        for parameter in ("a", "b"):
            assert torch.equal(found["zero"][parameter]["fp32"], module[parameter].float()), (name, found["zero"])
            assert torch.equal(found["zero"][parameter]["exp_avg"], module[parameter].float() * 10), (name, found["zero"])
    save_zero(torch, folder / "mapped", halves, other, module, shapes, {"stage": 1, "round_robin_gradients": False})
    refused(kintsugi, ("by param_shapes", "by param_slice_mappings", "'a'"), "show", folder / "mapped")
    swapped = {"a": torch.full((3,), 7.).bfloat16(), "b": module["b"]}
    save_zero(torch, folder / "master", halves, agrees, swapped, shapes, {"stage": 1})
    refused(kintsugi, ("'zero.a.fp32' and 'module.a'", "element [0] is 1, rounded 1, and 7", "--only"), "show", folder / "master")
    kept = torch.load(kintsugi.convert(folder / "master", folder / "master.pt", "torch", "--only", "module.*"))
    assert torch.equal(kept["module"]["a"], swapped["a"]), kept
    save_zero(torch, folder / "shape", halves, agrees, {"a": torch.ones(1, 3), "b": module["b"]}, shapes, {"stage": 1})
    refused(kintsugi, ("'zero.a.fp32' and 'module.a'", "[3] and [1, 3]"), "show", folder / "shape")
    # What every rank says of the whole group is one value; DeepSpeed's converter asserts it of a parameter's step.
    for name, steps in (("tensors", [torch.tensor(7.), torch.tensor(8.)]), ("numbers", [7, 8])):
        save_zero(torch, folder / name, halves, agrees, module, shapes, {"stage": 1}, steps=steps)
        refused(kintsugi, ("'zero.a.step' is 8 here and 7 in", "rank_1_mp", "rank_0_mp", "not of one save", "--only"), "show", folder / name)
        kept = torch.load(kintsugi.convert(folder / name, folder / f"{name}.pt", "torch", "--only", "module.*"))
        assert set(kept) == {"module"}, kept
        save_zero(torch, folder / f"{name}-same", halves, agrees, module, shapes, {"stage": 1}, steps=steps[:1] * 2)
        found = torch.load(kintsugi.convert(folder / f"{name}-same", folder / f"{name}-same.pt", "torch"))
        assert found["zero"]["a"]["step"] == 7, found
    # Before stage 3 a frozen parameter stands in the module, too.
    for name, more in (("frozen", 0.), ("thawed", 1.)):
        save_zero(torch, folder / name, halves, agrees, {**module, "f": torch.ones(4).bfloat16()}, shapes, {"stage": 1})
        path = folder / name / "global_step1/mp_rank_00_model_states.pt"
        held = torch.load(path, weights_only=False)
        torch.save({**held, "frozen_param_shapes": collections.OrderedDict(f=torch.Size([4])), "frozen_param_fragments": {"f": torch.ones(4).bfloat16() + more}}, path)
    assert torch.equal(torch.load(kintsugi.convert(folder / "frozen", folder / "frozen.pt", "torch"))["module"]["f"], torch.ones(4).bfloat16())
    refused(kintsugi, ("'module.f'", "frozen_param_fragments", "--only"), "show", folder / "thawed")
    for path in (folder / "frozen/global_step1").glob("*optim_states.pt"):
        os.unlink(path)
    assert any("*_optim_states.pt" in note for note in json.loads(kintsugi.run("show", folder / "frozen").stdout)["notes"])
    # Stage 3 has model states of each rank, and placeholders in them.
    tag = folder / "third/global_step1"
    tag.mkdir(parents=True)
    for rank in range(2):
        torch.save({"module": {"a": torch.empty(0)}, "param_shapes": [{"a": torch.Size([4])}], "buffer_names": [], "shared_params": {}, "dp_world_size": 2, "mp_world_size": 1,
                    "ds_version": "0.19.8", "ds_config": {"zero_optimization": {"stage": 3}}, "global_steps": 1}, tag / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
        state = {"zero_stage": 3, "partition_count": 2, "fp32_flat_groups": [torch.ones(2) + rank], "optimizer_state_dict": {"state": {0: {"exp_avg": torch.ones(2) * rank}}, "param_groups": []}}
        torch.save({"optimizer_state_dict": state}, tag / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    assert torch.load(kintsugi.convert(tag, folder / "third.pt", "torch"))["module"]["a"].tolist() == [1, 1, 2, 2]
    os.unlink(tag / "zero_pp_rank_1_mp_rank_00_model_states.pt")
    refused(kintsugi, ("model states of 1 data-parallel ranks, they say that there are 2",), "show", tag)
    save_zero(torch, folder / "fused", halves, agrees, module, shapes, {"stage": 1}, groups=[{"lr": 0.1, "step": 7}, {"lr": 0.1, "step": 8}])
    refused(kintsugi, ("'optimizer_state.param_groups'", "rank_1_mp", "rank_0_mp", "not of one save"), "show", folder / "fused")


def check_universal(torch, kintsugi, folder):
    """Shapes that param_shapes and a parameter's states tell are compared."""
    module = {"a": torch.ones(2, 3).bfloat16()}
    for name, shapes, states_of, words in (
            ("agrees", {"a": torch.Size([2, 3])}, {"fp32": torch.ones(2, 3), "exp_avg": torch.ones(2, 3), "step": torch.tensor(7.)}, None),
            ("said", {"a": torch.Size([3, 2])}, {"fp32": torch.ones(2, 3)}, ("'zero.a.fp32' has the shape [2, 3], by param_shapes 'a' has [3, 2]",)),
            ("state", {"a": torch.Size([2, 3])}, {"fp32": torch.ones(2, 3), "exp_avg": torch.ones(3, 2)}, ("'zero.a.exp_avg' has the shape [3, 2], by param_shapes 'a' has [2, 3]",)),
            ("rows", {"a": torch.Size([2, 3])}, {"fp32": torch.ones(2, 3), "exp_avg": torch.ones(1, 3)}, ("'zero.a.exp_avg' has the shape [1, 3]", "--only"))):
        tag = folder / name / "global_step1_universal"
        (tag / "zero/a").mkdir(parents=True)
        (folder / name / "latest_universal").write_text(tag.name)
        torch.save({"module": module, "param_shapes": [shapes], "buffer_names": [], "shared_params": {}, "ds_version": "0.19.8"}, tag / "mp_rank_00_model_states.pt")
        for state, value in states_of.items():
            torch.save({"param": value} if value.dim() else value, tag / f"zero/a/{state}.pt")
        torch.save({"ds_version": "0.19.8"}, tag / "zero/optimizer_state.pt")
        if words:
            refused(kintsugi, words, "show", folder / name)
        else:
            kintsugi.run("show", folder / name)


def check_two_formats(torch, safetensors, kintsugi, folder):
    """As a Hugging Face trainer leaves it with DeepSpeed: which of the two is asked for."""
    place = folder / "checkpoint-1"
    save_zero(torch, place, [torch.ones(3)], [[("a", 3, 0)]], {"a": torch.ones(3).bfloat16()}, collections.OrderedDict(a=torch.Size([3])), {"stage": 1})
    safetensors.save_file({"a": torch.ones(3).bfloat16()}, place / "model.safetensors", metadata={"format": "pt"})
    for words in (("show", place), ("verify", place), ("convert", place, folder / "two.pt", "--to", "torch"), ("diff", place, place)):
        refused(kintsugi, ("safetensors and deepspeed", "--format"), *words)
    assert {t["key"] for t in json.loads(kintsugi.run("show", place, "--format", "deepspeed").stdout)["tensors"]} >= {"module.a", "zero.a.fp32"}
    assert [t["key"] for t in json.loads(kintsugi.run("show", place, "--format", "safetensors").stdout)["tensors"]] == ["a"]
    # As accelerate leaves two models.
    two = folder / "two"
    two.mkdir()
    safetensors.save_file({"a": torch.ones(3)}, two / "model.safetensors")
    safetensors.save_file({"b": torch.ones(3)}, two / "model_1.safetensors")
    shown = json.loads(kintsugi.run("show", two).stdout)
    assert [t["key"] for t in shown["tensors"]] == ["a"] and any("'model_1.safetensors' lies there too" in note for note in shown["notes"]), shown["notes"]


def check_codes(torch, safetensors, kintsugi, folder):
    """float8 with its scales beside it: a cast of codes is said to be one."""
    codes = torch.tensor([1., 2, 4]).to(torch.float8_e4m3fn)
    safetensors.save_file({"w": codes, "w_scale_inv": torch.tensor([0.5]), "v": torch.ones(2)}, folder / "codes.safetensors")
    program = folder / "codes.aoa"
    program.write_text("w -> x\n")
    for more, name in (((), "w"), (("--aoa", program), "x")):
        done = kintsugi.run("convert", folder / "codes.safetensors", folder / f"cast-{name}.safetensors", "--to", "safetensors", "--dtype", "bf16", *more)
        assert f"'{name}': float8 was cast to bfloat16 as it is stored" in done.stderr, done.stderr
    assert "float8" not in kintsugi.run("convert", folder / "codes.safetensors", folder / "kept.safetensors", "--to", "safetensors").stderr


def check_headers(torch, safetensors, kintsugi, folder):
    """What the published reader of safetensors refuses; and one tensor of a type that we do not read leaves the others."""
    path = folder / "nul.safetensors"
    safetensors.save_file({"w": torch.ones(2)}, path)
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    path.write_bytes((size + 8).to_bytes(8, "little") + whole[8:8 + size] + b"\0garbage" + whole[8 + size:])
    try:
        safetensors.load_file(path)
        raise SystemExit("the library reads it")
    except Exception as error:  # pylint: disable=broad-exception-caught
        assert "header" in str(error).lower(), error
    refused(kintsugi, ("NUL", "header"), "show", path)
    # What it passes over, and what it then still refuses.
    plain = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for head in (b" \n" + json.dumps({"w": plain}).encode(), json.dumps({"__metadata__": None, "w": plain}).encode(),
                 json.dumps({"w": {"more": {"a": [None, -1.5, "x"]}, **plain, "last": None}}).encode(),
                 json.dumps({"w": None}).encode(), json.dumps({"__metadata__": {"a": None}, "w": plain}).encode(), json.dumps({"w": {**plain, "shape": None}}).encode()):
        path.write_bytes(len(head).to_bytes(8, "little") + head + b"\0\0\x80\x3f\0\0\0\x40")
        try:
            expected = safetensors.load_file(path)
        except Exception:  # pylint: disable=broad-exception-caught
            refused(kintsugi, ("header", "null"), "show", path)
            continue
        found = torch.load(kintsugi.convert(path, folder / "passed.pt", "torch", "--overwrite"))
        assert set(found) == set(expected) == {"w"} and torch.equal(found["w"], expected["w"]), (head, found)
    head = json.dumps({"four": {"dtype": "F4", "shape": [2, 2], "data_offsets": [0, 2]}, "w": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]}}).encode()
    (folder / "four.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + b"\x12\x34" + b"\0\0\x80\x3f")
    refused(kintsugi, ("tensor 'four'", "F4", "--skip-objects"), "convert", folder / "four.safetensors", folder / "four.pt", "--to", "torch")
    for more in (("--skip-objects",), ("--only", "w")):
        found = torch.load(kintsugi.convert(folder / "four.safetensors", folder / f"four{len(more)}.pt", "torch", *more))
        assert set(found) == {"w"} and found["w"].item() == 1, found


def check_archives(torch, kintsugi, folder):
    """What torch.load takes: records that no tensor uses, bytes behind the end, no sums."""
    state = {"w": torch.arange(6.), "b": torch.ones(3).bfloat16()}
    whole = folder / "whole.pt"
    torch.save(state, whole)

    def taken(name, change):
        path = folder / name
        path.write_bytes(whole.read_bytes())
        change(path)
        states.assert_equal_states(torch, state, torch.load(path, weights_only=True), name)
        states.assert_equal_states(torch, state, torch.load(kintsugi.convert(path, folder / f"out-{name}", "torch"), weights_only=True), name)

    def add(method, record):
        def change(path):
            with zipfile.ZipFile(path, "a", method) as archive:
                archive.writestr(record, "notes " * 300)
        return change

    taken("stored.pt", add(zipfile.ZIP_STORED, "whole/notes.json"))
    taken("deflated.pt", add(zipfile.ZIP_DEFLATED, "whole/notes.json"))
    taken("twice.pt", add(zipfile.ZIP_STORED, "whole/version"))
    taken("tail.pt", lambda path: path.write_bytes(path.read_bytes() + b"\0" * 100))
    torch.serialization.set_crc32_options(False)
    torch.save(state, folder / "sumless.pt")
    torch.serialization.set_crc32_options(True)
    found = torch.load(kintsugi.convert(folder / "sumless.pt", folder / "sumless-out.pt", "torch"), weights_only=True)
    states.assert_equal_states(torch, state, found, "without sums")
    assert "nobody left checksums" in kintsugi.run("verify", folder / "sumless.pt").stdout
    # What a tensor uses is unpacked as torch.load does, by no other method than torch.save's reader knows.
    with zipfile.ZipFile(whole) as archive:
        names = {name: archive.read(name) for name in archive.namelist()}
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2):
        with zipfile.ZipFile(folder / f"used-{method}.pt", "w", zipfile.ZIP_STORED) as archive:
            for name, data in names.items():
                archive.writestr(name, data, method if name.endswith("data/0") else None)
    unpacked = kintsugi.convert(folder / f"used-{zipfile.ZIP_DEFLATED}.pt", folder / "unpacked.pt", "torch")
    states.assert_equal_states(torch, torch.load(folder / f"used-{zipfile.ZIP_DEFLATED}.pt", weights_only=True),
                               torch.load(unpacked, weights_only=True), "deflated")
    refused(kintsugi, ("tensor 'w'", "is compressed (method 12)"), "show", folder / f"used-{zipfile.ZIP_BZIP2}.pt")


class Own:
    def __init__(self, value):
        self.value = value


def dcp_loads(dcp, folder, key):
    state = {key: None}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    return state[key]


def check_weights_only(torch, dcp, kintsugi, folder):
    """What weights_only refuses is named and left out of what is written for it."""
    import argparse
    import datetime
    import numpy
    kept = {"w": torch.ones(2), "size": torch.Size([2]), "set": {1}, "bytes": b"\xff", "type": torch.bfloat16, "device": torch.device("cpu"),
            "counter": collections.Counter("aab"), "complex": 1 + 2j, "array": bytearray(b"x"), "layout": torch.strided, "big": 1 << 90}
    refusals = {"args": (argparse.Namespace(lr=0.1), "argparse.Namespace"), "scalar": (numpy.float64(2), "numpy"), "random": (numpy.arange(3), "numpy"),
                "frozen": (frozenset({1}), "builtins.frozenset"), "path": (pathlib.Path("a"), "pathlib.PosixPath"),
                "deep": ([1, {"when": datetime.timedelta(1)}], "datetime.timedelta")}
    torch.save({**kept, "more": {key: value for key, (value, _) in refusals.items()}}, folder / "all.pt")
    done = kintsugi.run("convert", folder / "all.pt", folder / "kept.pt", "--to", "torch")
    for key, (_, name) in refusals.items():
        place = f"more.{key}" if key != "deep" else "more.deep.1.when"
        line = next((line for line in done.stderr.splitlines() if f"object '{place}'" in line), "")
        assert "left out" in line and name in line and "weights_only" in line, (key, done.stderr)
    found = torch.load(folder / "kept.pt", weights_only=True)
    states.assert_equal_states(torch, kept, {key: value for key, value in found.items() if key in kept}, "kept")
    # Others keep them: DCP's own load is of pickles.
    kintsugi.convert(folder / "all.pt", folder / "dcp", "dcp")
    assert "more.args" in json.dumps(json.loads(kintsugi.run("show", folder / "dcp").stdout)["objects"])
    # Classes of somebody's own, whether a pickle or a blob has them; one with a tensor in it is not lost by a note.
    torch.save({"w": torch.ones(2), "own": Own(3)}, folder / "own.pt")
    dcp.save({"w": torch.ones(2), "own": Own(3)}, checkpoint_id=folder / "own", no_dist=True)
    for source in ("own.pt", "own"):
        done = kintsugi.run("convert", folder / source, folder / "plain.pt", "--to", "torch", "--overwrite")
        assert "left out: object 'own'" in done.stderr and "Own is not in the safe subset" in done.stderr, done.stderr
        assert set(torch.load(folder / "plain.pt", weights_only=True)) == {"w"}, source
        refused(kintsugi, ("object 'own'", "--skip-objects"), "convert", folder / source, folder / "zero", "--to", "deepspeed")
        done = kintsugi.run("convert", folder / source, folder / "zero", "--to", "deepspeed", "--skip-objects", "--overwrite")
        assert "left out: object 'own'" in done.stderr, done.stderr
    assert dcp_loads(dcp, kintsugi.convert(folder / "own", folder / "own-again", "dcp"), "own").value == 3
    torch.save({"w": torch.ones(2), "own": Own(torch.ones(3))}, folder / "held.pt")
    refused(kintsugi, ("object 'own'", "--skip-objects"), "convert", folder / "held.pt", folder / "x.pt", "--to", "torch")


def check_kinds(torch, dcp, kintsugi, folder):
    """One tensor of a kind that is not read leaves the others of a DCP folder."""
    codes = torch.quantize_per_tensor(torch.randn(3, 3), 0.1, 0, torch.qint8)
    packed = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    for name, value, words in (("quantized", codes, ("tensor 'm.x'", "torch.qint8")), ("packed", packed, ("tensor 'm.x'", "torch.float4_e2m1fn_x2")),
                               ("subclass", torch.ones(3).as_subclass(Subclass), ("tensor 'm.x'", "a kind that is not read")),
                               ("listed", [torch.ones(2), codes], ("tensor 'm.x.1'", "torch.qint8"))):
        dcp.save({"m": {"a": torch.arange(4.), "x": value, "z": torch.ones(2, 3).bfloat16()}}, checkpoint_id=folder / name, no_dist=True)
        refused(kintsugi, (*words, "--skip-objects"), "convert", folder / name, folder / "x.pt", "--to", "torch")
        assert any("left out" in note and words[0] in note for note in json.loads(kintsugi.run("show", folder / name).stdout)["notes"])
        for more in (("--skip-objects",), ("--only", "m.a", "--only", "m.z")):
            found = torch.load(kintsugi.convert(folder / name, folder / "left.pt", "torch", "--overwrite", *more), weights_only=True)["m"]
            assert torch.equal(found["a"], torch.arange(4.)) and torch.equal(found["z"], torch.ones(2, 3).bfloat16()), (name, found)
            assert set(found) == ({"a", "x", "z"} if name == "listed" and more == ("--skip-objects",) else {"a", "z"}), (name, found)
    # A file of it begins as torch.save's do.
    dcp.save({"w": torch.ones(2)}, checkpoint_id=folder / "one", no_dist=True)
    refused(kintsugi, ("one rank wrote", "name the folder"), "show", folder / "one/__0_0.distcp")


class Net:  # pylint: disable=attribute-defined-outside-init
    """Becomes a torch.nn.Module in main()."""
    def build(self, torch):
        self.first, self.tied, self.gone = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), None
        self.again = self.first
        self.more = torch.nn.ModuleDict({"rnn": torch.nn.GRU(4, 2), "list": torch.nn.ModuleList([torch.nn.Linear(2, 2, bias=False), torch.nn.ReLU()])})
        self.own = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(2)), torch.nn.Parameter(torch.randn(3))])
        self.register_buffer("mask", torch.arange(5))
        self.register_buffer("passing", torch.arange(7), persistent=False)
        self.register_buffer("nothing", None)
        self.plain = torch.ones(9)  # an attribute: no part of the state
        return self


def check_modules(torch, kintsugi, folder):
    """A module that was saved whole: its state_dict, of which nothing is lost and nothing else is read."""
    torch.manual_seed(3)
    model = globals()["NetModule"]().build(torch)
    want = model.state_dict()
    assert "passing" not in want and "again.weight" in want
    for name, value, key in (("whole", model, None), ("within", {"epoch": 3, "model": model, "ema": None}, "model"), ("listed", [model, 5], 0)):
        for old in (False, True):
            path = folder / f"{name}-{old}.pt"
            torch.save(value, path, _use_new_zipfile_serialization=not old)
            found = torch.load(kintsugi.convert(path, folder / "out.pt", "torch", "--overwrite"), weights_only=True)
            assert key != "model" or found["epoch"] == 3
            states.assert_equal_states(torch, dict(want), found if key is None else found[key], str(path))
            assert any("is a whole module" in note and "NetModule" in note for note in json.loads(kintsugi.run("show", path).stdout)["notes"])
    torch.jit.script(torch.nn.Linear(2, 3)).save(str(folder / "script.pt"))
    refused(kintsugi, ("TorchScript", "torch.jit.load"), "show", folder / "script.pt")


def check_old_protocols(torch, kintsugi, folder):
    """torch.save's older form in other protocols of pickle than the second, as was usual above 4 GiB."""
    state = {"w": torch.arange(6.).reshape(2, 3), "v": torch.ones(3).bfloat16(), "n": 5}
    for protocol in (2, 3, 4, 5):
        path = folder / f"{protocol}.pt"
        torch.save(state, path, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
        states.assert_equal_states(torch, torch.load(path, weights_only=False), torch.load(kintsugi.convert(path, folder / f"{protocol}-out.pt", "torch")), path)


def check_alone(torch, kintsugi, folder):
    """One rank's file among others' looks like a whole model: it is said what it is."""
    for name, other in (("consolidated.00.pth", "consolidated.01.pth"), ("model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt"),
                        ("mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"), ("mp_rank_00/model_optim_rng.pt", "mp_rank_01/model_optim_rng.pt")):
        for path, value in ((name, 0.), (other, 1.)):
            (folder / path).parent.mkdir(exist_ok=True)
            torch.save({"w": torch.full((2, 4), value)}, folder / path)
        done = kintsugi.run("convert", folder / name, folder / "out.pt", "--to", "torch", "--overwrite")
        assert f"{other}', another's, is not read" in done.stderr and "one rank's part" in done.stderr, done.stderr
    # All of them, for a program that joins them.
    for name in ("consolidated.00.pth", "consolidated.01.pth"):
        (folder / "llama").mkdir(exist_ok=True)
        shutil.copy(folder / name, folder / "llama")
    refused(kintsugi, ("there are 'consolidated.00.pth', 'consolidated.01.pth' in it",), "show", folder / "llama")
    (folder / "join.aoa").write_text("rank-00000/w, rank-00001/w -> w, axis=0\n")
    kintsugi.convert(folder / "llama", folder / "joined.pt", "torch", "--format", "torch-ranks", "--aoa", folder / "join.aoa")
    assert torch.equal(torch.load(folder / "joined.pt")["w"], torch.cat([torch.zeros(2, 4), torch.ones(2, 4)]))


def check_compared(torch, dcp, kintsugi, folder):
    """Checkpoints are not said to be equal where a tensor of one was not read; objects that hold none are told of."""
    import argparse
    torch.save({"w": torch.ones(2), "s": torch.eye(2).to_sparse(), "args": argparse.Namespace(a=1)}, folder / "odd.pt")
    torch.save({"w": torch.ones(2), "args": argparse.Namespace(a=1)}, folder / "plain.pt")
    for left, right in (("odd.pt", "plain.pt"), ("plain.pt", "odd.pt"), ("odd.pt", "odd.pt")):
        refused(kintsugi, ("tensor 's'", "--skip-objects leaves such out"), "diff", folder / left, folder / right)
        refused(kintsugi, ("tensor 's'", "--skip-objects leaves such out"), "verify", folder / left, "--against", folder / right)
        for more in (("--skip-objects",), ("--only", "w")):
            assert "left out: tensor 's'" in kintsugi.run("diff", folder / left, folder / right, *more).stderr
        kintsugi.run("verify", folder / left, "--against", folder / right, "--skip-objects")
    kintsugi.equal(folder / "plain.pt", folder / "plain.pt")


def check_places(torch, dcp, kintsugi, folder):
    """Lists at the root go through formats that keep names alone; a folder that is not flattened; a folder's name with a slash."""
    state = [{"w": torch.ones(2)}, {"lr": 0.1, "v": torch.zeros(3)}]
    torch.save(state, folder / "list.pt")
    for form, ending in (("safetensors", ".safetensors"), ("native", ""), ("dcp", "")):
        made = kintsugi.convert(folder / "list.pt", folder / f"list-{form}{ending}", form)
        assert kintsugi.equal(folder / "list.pt", made)["objects"] == 1
        kintsugi.equal(made, kintsugi.convert(made, folder / f"again-{form}.pt", "torch"))
    # What Lightning writes beside a DCP folder is no part of it, and told of.
    torch.save({"epoch": 3}, folder / "list-dcp/meta.pt")
    assert any("'meta.pt' lies there too" in note for note in json.loads(kintsugi.run("show", folder / "list-dcp").stdout)["notes"])
    planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
    dcp.save({"a": {"b": torch.arange(3.), "n": [1, torch.ones(2)]}, "w": torch.ones(4)}, checkpoint_id=folder / "nested", planner=planner, no_dist=True)
    found = torch.load(kintsugi.convert(folder / "nested", folder / "nested.pt", "torch"))
    states.assert_equal_states(torch, {"a": {"b": torch.arange(3.), "n": [1, torch.ones(2)]}, "w": torch.ones(4)}, found, "nested")
    for form in ("dcp", "native", "safetensors"):
        kintsugi.run("convert", folder / "list.pt", f"{folder}/slash-{form}/", "--to", form)
        kintsugi.equal(folder / "list.pt", folder / f"slash-{form}")
    assert not [path for path in folder.rglob("*") if "unfinished" in path.name]


def check_keys(torch, dcp, safetensors, kintsugi, folder):
    """Keys that are no plain texts: called as torch's DCP calls them, and the same keys again where torch reads them."""
    one = torch.arange(2.)
    keys = [("a", 1), (1,), (), ("it's", 'q"', "\n", b"\x00\xffA", None, True, -2.5), b"x", b"it's\t", 1.5, 1e16, 1e-5, -0.0, 1e300, True, None, 12345678.875]
    state = {"by": {key: one + number for number, key in enumerate(keys)}, "t": (one, [one + 1], {"x": (one,)}), "objects": {(0, 1): 5}, "w": one}
    torch.save(state, folder / "keys.pt")
    ours = kintsugi.convert(folder / "keys.pt", folder / "ours.pt", "torch")
    found = torch.load(ours, weights_only=True)
    assert list(found["by"]) == keys and [type(key) for key in found["by"]] == [type(key) for key in keys], found["by"]
    assert all(torch.equal(found["by"][key], state["by"][key]) for key in keys)
    assert type(found["t"]) is tuple and type(found["t"][1]) is list and type(found["t"][2]["x"]) is tuple and torch.equal(found["t"][2]["x"][0], one), found["t"]
    assert found["objects"] == {(0, 1): 5}
    dcp.save({"by": state["by"]}, checkpoint_id=folder / "dcp", no_dist=True)
    theirs = {t["key"] for t in json.loads(kintsugi.run("show", folder / "dcp").stdout)["tensors"]}
    assert {t["key"] for t in json.loads(kintsugi.run("show", folder / "keys.pt").stdout)["tensors"] if t["key"].startswith("by.")} == theirs, theirs
    loaded = {"by": {key: torch.zeros(2) for key in keys}}
    dcp.load(loaded, checkpoint_id=kintsugi.convert(folder / "keys.pt", folder / "ours-dcp", "dcp"), no_dist=True)
    assert all(torch.equal(loaded["by"][key], state["by"][key]) for key in keys)
    # A tuple of tensors is one object of DCP's, with the same name both ways.
    dcp.save({"t": state["t"], "w": one}, checkpoint_id=folder / "tuple", no_dist=True)
    for name, source in (("theirs", folder / "tuple"), ("again", kintsugi.convert(folder / "tuple", folder / "tuple-again", "dcp")),
                         ("ours", kintsugi.convert(folder / "keys.pt", folder / "tuple-ours", "dcp", "--only", "t.*", "--only", "w"))):
        loaded = {"t": None, "w": torch.zeros(2)}
        dcp.load(loaded, checkpoint_id=source, no_dist=True)
        back = torch.load(kintsugi.convert(source, folder / f"tuple-{name}.pt", "torch"))
        for found in (loaded, back):
            assert type(found["t"]) is tuple and type(found["t"][1]) is list and torch.equal(found["t"][0], one) and torch.equal(found["t"][1][0], one + 1), (name, found)
            assert type(found["t"][2]["x"]) is tuple and torch.equal(found["t"][2]["x"][0], one) and torch.equal(found["w"], one), (name, found)
    kintsugi.equal(folder / "tuple", folder / "tuple-ours")
    for name, odd, words in (("two", {1: one, "1": one}, ("'x.1' is there twice",)), ("tuple-two", {(1,): one, "(1,)": one}, ("'x.(1,)' is there twice",)),
                             ("set", {frozenset({1}): one}, ("object 'x'", "tensors lie under a key that is", "which has no name", "--skip-objects"))):
        torch.save({"x": odd, "w": one}, folder / f"{name}.pt")
        refused(kintsugi, words, "convert", folder / f"{name}.pt", folder / "x.pt", "--to", "torch")
    assert set(torch.load(kintsugi.convert(folder / "set.pt", folder / "only.pt", "torch", "--only", "w"))) == {"w"}
    # Characters that no name here has are escaped, and a note says so; what lies deep, empty or long is left out at most.
    torch.save({"a\nb": one, "w": one}, folder / "control.pt")
    safetensors.save_file({"a\nb": one, "w": one.clone()}, folder / "control.safetensors")
    dcp.save({"a\nb": one, "w": one}, checkpoint_id=folder / "control", no_dist=True)
    for source in ("control.pt", "control.safetensors", "control"):
        done = kintsugi.run("convert", folder / source, folder / "escaped.pt", "--to", "torch", "--overwrite")
        assert "called 'a\\x0ab' here" in done.stderr, done.stderr
        assert set(torch.load(folder / "escaped.pt")) == {"a\nb", "w"}, source
    many = torch.arange(4.).reshape([1] * 8 + [4])
    for key, value, words in (("many", many, ("tensor 'many'", "9 axes")), ("", one, ("key is empty",)), ("x" * 2000, one, ("2000 bytes",))):
        torch.save({key: value, "w": one}, folder / "left.pt")
        safetensors.save_file({key: value, "w": one.clone()}, folder / "left.safetensors")
        dcp.save({key: value, "w": one}, checkpoint_id=folder / f"left-{key[:4]}", no_dist=True)
        for source in ("left.pt", "left.safetensors", f"left-{key[:4]}"):
            refused(kintsugi, (*words, "--skip-objects"), "convert", folder / source, folder / "x.pt", "--to", "torch")
            for more in (("--skip-objects",), ("--only", "w")):
                assert set(torch.load(kintsugi.convert(folder / source, folder / "left-out.pt", "torch", "--overwrite", *more))) == {"w"}, source
    # A serialization that DCP writes and does not load.
    from torch.distributed.checkpoint.filesystem import SerializationFormat
    dcp.save({"w": one}, storage_writer=dcp.FileSystemWriter(folder / "st", serialization_format=SerializationFormat.SAFETENSORS), no_dist=True)
    try:
        dcp.load({"w": torch.zeros(2)}, checkpoint_id=folder / "st", no_dist=True)
        raise AssertionError("DCP reads it")
    except dcp.api.CheckpointException:
        refused(kintsugi, ("tensor 'w'", "SerializationFormat.SAFETENSORS", "shard-00001-model-00001-of-00001.safetensors"), "show", folder / "st")
    (folder / "shards").mkdir()
    shutil.copy(folder / "st/__0_0.distcp", folder / "shards/shard-00001-model-00001-of-00001.safetensors")
    assert torch.equal(torch.load(kintsugi.convert(folder / "shards", folder / "shards.pt", "torch"))["w"], one)


def main():
    torch, safetensors, dcp = oracle.need("torch", "safetensors.torch", "torch.distributed.checkpoint")
    globals()["Subclass"] = type("Subclass", (torch.Tensor,), {"__module__": __name__})  # to be pickled by name
    globals()["NetModule"] = type("NetModule", (Net, torch.nn.Module), {"__module__": __name__})
    kintsugi = Kintsugi(sys.argv[1])
    checks = [(check_modules, (torch, kintsugi)), (check_old_protocols, (torch, kintsugi)), (check_alone, (torch, kintsugi)),
              (check_compared, (torch, dcp, kintsugi)), (check_places, (torch, dcp, kintsugi)),
              (check_views, (torch, dcp, kintsugi)), (check_shards, (torch, safetensors, kintsugi)), (check_zero, (torch, kintsugi)), (check_universal, (torch, kintsugi)),
              (check_two_formats, (torch, safetensors, kintsugi)), (check_codes, (torch, safetensors, kintsugi)),
              (check_headers, (torch, safetensors, kintsugi)), (check_archives, (torch, kintsugi)), (check_weights_only, (torch, dcp, kintsugi)), (check_kinds, (torch, dcp, kintsugi)), (check_keys, (torch, dcp, safetensors, kintsugi))]
    for check, arguments in checks:
        with tempfile.TemporaryDirectory() as folder:
            check(*arguments, pathlib.Path(folder))
        print(check.__name__, "ok")


if __name__ == "__main__":
    main()
