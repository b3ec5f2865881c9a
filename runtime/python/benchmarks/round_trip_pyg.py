"""Compares with PyG, on demand: `pip install torch torch_geometric`, then
`python benchmarks/round_trip_pyg.py DATA/acm [HGNNC]`.

A HeteroData survives `from_pyg` and `to_pyg` exactly, with features at the same address, and training on it equals the
command to the bit.
"""

import pathlib
import subprocess
import sys
import tempfile

import torch

import hgnnc

ROOT = pathlib.Path(__file__).resolve().parents[3]


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        if "sparse" in str(a.layout):
            return all(same(getattr(a, f)(), getattr(b, f)()) for f in ("crow_indices", "col_indices", "values"))
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    return a == b


def main(folder: str, command: str) -> None:
    dataset = hgnnc.Dataset(folder)
    data = dataset.to_pyg()
    back = hgnnc.from_pyg(data).to_pyg()
    assert data.metadata() == back.metadata()
    for key in (*data.node_types, *data.edge_types):
        assert set(data[key].keys()) == set(back[key].keys()), key
        for name in data[key].keys():
            assert same(data[key][name], back[key][name]), (key, name)
            value = data[key][name]
            if name == "x":
                values = (lambda t: t.values() if "sparse" in str(t.layout) else t)
                assert values(value).data_ptr() == values(back[key][name]).data_ptr(), key
    print("round trip: exact, features at the same address")

    model = ROOT / "examples" / "han" / "acm.hgnn"
    run = hgnnc.load(model).fit(data, epochs=5, device="cpu", progress=False)
    with tempfile.TemporaryDirectory() as work:
        weights = f"{work}/w.safetensors"
        arguments = ["train", model, "--data", folder, "--epochs", "5", "--device", "cpu", "--weights-out", weights]
        subprocess.run([command, *arguments, "--quiet"], check=True)
        expected = hgnnc.load(model, weights=weights).weights
    assert all(expected[name].tobytes() == run.weights[name].tobytes() for name in expected)
    print("fit of a HeteroData: equal to the command to the bit")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else str(ROOT / "target" / "release" / "hgnnc"))
