"""kintsugi.aoa: a conversion whose program uses macros of Python's, and what is told where they are wrong.
usage: aoa_test.py BIN PACKAGE
"""
import json
import pathlib
import struct
import sys
import tempfile

import numpy as np

sys.path.insert(0, sys.argv[2])
from kintsugi import Error  # noqa: E402
from kintsugi.aoa import MacroCall, convert  # noqa: E402


def save(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + value.nbytes]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def load(path):
    raw = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", raw[:8])
    found = {}
    for name, about in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in about["data_offsets"])
            found[name] = np.frombuffer(raw[begin:end], np.float32).reshape(about["shape"])
    return found


def interleaved(call: MacroCall) -> list[str]:
    source, (first, second) = call.left[0], call.right
    shape = call.source_shape(source)
    if shape is None or len(shape) != 2:
        raise ValueError(f"{source} is no matrix")
    rows, columns = shape[0] // 2, shape[1]
    assert call.source_shape("no such key") is None and call.destination_shape(source) is None
    assert call.attributes == {"n": 2, "kind": "rows", "of": [1, 2]}, call.attributes
    flat = f", reshape=[{rows},{columns}]"
    return [f"{source} -> {source}.t, reshape=[{rows},2,{columns}]", f"{source}.t -> {source}.0, {source}.1, axis=1",
            f"{source}.0 -> {first}{flat}", f"{source}.1 -> {second}{flat}"]


def refused(words, *given, **options):
    try:
        convert(*given, **options)
    except Error as error:
        assert words in str(error), error
        return
    raise AssertionError(f"taken: {options}")


def main():
    with tempfile.TemporaryDirectory(prefix="kintsugi-aoa-") as name:
        folder = pathlib.Path(name)
        held = {f"layers.{layer}.w": np.arange(24, dtype=np.float32).reshape(6, 4) + 100 * layer for layer in range(2)}
        save(folder / "held.safetensors", {**held, "v": np.ones(3, np.float32)})
        statement = "layers.$LAYER_ID.w -> layers.$LAYER_ID.even, layers.$LAYER_ID.odd, interleaved, n=2, kind='rows', of=[1, 2]"
        given = (folder / "held.safetensors", folder / "made.safetensors", "safetensors")
        made = convert(*given, aoa=[statement], macros={"interleaved": interleaved})
        assert made.tensors == 5 and made.path == str(folder / "made.safetensors"), made
        found = load(made.path)
        for layer in range(2):
            assert np.array_equal(found[f"layers.{layer}.even"], held[f"layers.{layer}.w"][0::2])
            assert np.array_equal(found[f"layers.{layer}.odd"], held[f"layers.{layer}.w"][1::2])
        (folder / "p.aoa").write_text("v -> ${name}\n")
        again = (given[0], folder / "again.safetensors", "safetensors")
        assert "u" in load(convert(*again, aoa=f"{folder}/p.aoa:name=u").path)
        none = (given[0], folder / "none.safetensors", "safetensors")
        macros = {"interleaved": interleaved}
        refused("statement 1, column 13: the macro 'interleaved' says: v is no matrix", *none, aoa=["v -> a, b,  interleaved"], macros=macros)
        refused("made a statement that is none", *none, aoa=["v -> a, interleaved"], macros={"interleaved": lambda call: ["v ->"]})
        refused("cannot be a macro of your own", *none, aoa=["v -> a"], macros={"stacked": interleaved})
        refused("cannot be read", *none, aoa=f"{folder}/absent.aoa")
        assert not (folder / "none.safetensors").exists()
    print("macros of Python's in a program: right, and refused by place")


if __name__ == "__main__":
    sys.exit(main())
