"""`hgnnc.torch.Layer`: autograd, PyTorch's conventions, and equality with PyG's layers."""

import copy
import pathlib
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import hgnnc  # noqa: E402
from hgnnc.torch import Layer  # noqa: E402

SCHEMA = """
schema Library {
    vertex Paper from "paper" { x: f32[5] }
    vertex Author from "author" { x: f32[3] }
    relation cites: Paper -> Paper
    relation writes: Author -> Paper
    relation written_by: Paper -> Author from "written-by"
    metapath PAP = Paper -written_by-> Author <-written_by- Paper
    metapath PAPAP = Paper -written_by-> Author <-written_by- Paper -written_by-> Author <-written_by- Paper
}
"""


def model(use: str, body: str) -> str:
    return f"{use}\n{SCHEMA}\nmodel Net(schema: Library) {{\n{body}\n}}\n"


HAN = model(
    "use std::han::HanConv",
    "    output z: Paper = HanConv(hidden: 4, heads: 2, attention: 8, activation: relu) over [PAP, PAPAP] of Paper.x",
)
GAT = model("use std::gat::GatConv", "    output z: Paper = GatConv(hidden: 4, heads: 3) over cites of Paper.x")
RGCN = model(
    "use std::rgcn::RgcnConv",
    """    let same = linear(Paper.x, 5)
    let h = RgcnConv(hidden: 4) over [cites, PAP] of Paper.x
    output z: Paper = h
    output other: Paper = same""",
)

PAPERS, AUTHORS = 9, 4


class Library:
    """A small dataset: paper 8 is isolated, author 3 wrote nothing."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        random = np.random.default_rng(3)
        self.cites = np.array([[0, 1, 2, 2, 4, 5, 6, 7, 3, 0], [1, 2, 0, 3, 4, 0, 0, 1, 3, 7]], dtype=np.int32)
        papers, authors = random.integers(8, size=14), random.integers(3, size=14)
        pairs = {(int(p), int(a)) for p, a in zip(papers, authors, strict=True)}
        self.written_by = np.array(sorted(pairs), dtype=np.int32).T
        self.authors = random.normal(size=(AUTHORS, 3)).astype(np.float32)
        arrays = {
            "author.x": self.authors,
            "cites": self.cites,
            "written-by": self.written_by,
            "writes": np.ascontiguousarray(self.written_by[::-1]),
        }
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        (folder / "dataset.toml").write_text(
            f"""
name = "library"
[[vertex_type]]
name = "paper"
count = {PAPERS}
[[vertex_type]]
name = "author"
count = {AUTHORS}
features = {{ kind = "dense", dim = 3, file = "author.x.npy" }}
[[relation]]
name = "cites"
src = "paper"
dst = "paper"
file = "cites.npy"
[[relation]]
name = "writes"
src = "author"
dst = "paper"
file = "writes.npy"
[[relation]]
name = "written-by"
src = "paper"
dst = "author"
file = "written-by.npy"
"""
        )
        incidence = np.zeros((PAPERS, AUTHORS), dtype=np.int64)
        incidence[self.written_by[0], self.written_by[1]] = 1
        self.pap = incidence @ incidence.T
        self.papap = self.pap @ self.pap

    def layer(self, text: str, **options: object) -> Layer:
        return Layer(text, self.folder, inputs=["Paper.x"], threads=1, **options)


@pytest.fixture
def library(tmp_path: pathlib.Path) -> Library:
    return Library(tmp_path)


def features() -> torch.Tensor:
    return torch.randn(PAPERS, 5, generator=torch.Generator().manual_seed(1))


def edges(matrix: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack(np.nonzero(matrix))).long()


# Without a kink where values may be.
@pytest.mark.parametrize("text", [HAN.replace("activation: relu", "activation: elu"), GAT])
@pytest.mark.filterwarnings("ignore:.*not a double precision.*")
def test_gradcheck(library: Library, text: str) -> None:
    layer = library.layer(text)
    x = features().requires_grad_()
    inputs = [x, *layer.parameters()]
    # The layer computes in f32: differences of step h are good to about 1e-7 / h.
    assert torch.autograd.gradcheck(lambda x, *_: layer(x), inputs, eps=1e-2, atol=2e-3, rtol=2e-2, fast_mode=False)


def test_an_encoder_in_front_is_trained(library: Library) -> None:
    torch.manual_seed(0)
    layer, encoder = library.layer(HAN), torch.nn.Linear(7, 5)
    texts, target = torch.randn(PAPERS, 7), torch.randn(PAPERS, 8)
    optimizer = torch.optim.Adam([*encoder.parameters(), *layer.parameters()], lr=0.02)
    before = encoder.weight.detach().clone()
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(layer(encoder(texts)), target)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.9 * losses[0]
    assert not torch.equal(before, encoder.weight)


def test_several_calls_before_one_backward(library: Library) -> None:
    layer = library.layer(GAT)
    a, b = features().requires_grad_(), (2 * features()).requires_grad_()
    (layer(a).sum() + layer(b).square().sum()).backward()
    found = [a.grad, b.grad, *[parameter.grad.clone() for parameter in layer.parameters()]]
    layer.zero_grad()
    a.grad = b.grad = None
    layer(a).sum().backward()
    layer(b).square().sum().backward()
    expected = [a.grad, b.grad, *[parameter.grad for parameter in layer.parameters()]]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_an_input_of_zeros_is_read_anew_at_each_call(library: Library) -> None:
    # Mostly zeros, so that the first call compiles programs for these numbers; NumPy changes them behind PyTorch's back.
    text = GAT.replace("f32[5]", "f32[80]")
    numbers = np.zeros((PAPERS, 80), dtype=np.float32)
    numbers[np.arange(PAPERS), np.arange(PAPERS) * 7] = 1.0
    fast = Layer(text, library.folder, inputs=["Paper.x"])
    exact = copy.deepcopy(fast)
    for at, number in [((0, 0), 1.0), ((2, 14), 3.0), ((5, 6), -2.0), ((2, 14), 1.0), ((5, 6), 0.0)]:
        numbers[at] = number
        grads = []
        for layer, wants in [(fast, False), (exact, True)]:
            x = torch.from_numpy(numbers).requires_grad_(wants)
            layer.zero_grad()
            layer(x).square().sum().backward()
            grads.append(torch.cat([param.grad.flatten() for param in layer.parameters()]))
        torch.testing.assert_close(grads[0], grads[1], rtol=1e-5, atol=1e-5)


def test_backward_twice_and_without_gradients(library: Library) -> None:
    layer = library.layer(GAT)
    x = features().requires_grad_()
    out = layer(x)
    first = torch.autograd.grad(out.sum(), x, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(out.sum(), x)[0])
    with torch.no_grad():
        assert torch.equal(layer(x), out)
    # Only what is asked for.
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
    layer(x).sum().backward()
    assert x.grad is not None and all(parameter.grad is None for parameter in layer.parameters())


def test_several_outputs_are_a_dict(library: Library) -> None:
    layer = library.layer(RGCN)
    out = layer({"Paper.x": features()})
    assert list(out) == ["other", "z"]
    assert out["z"].shape == (PAPERS, 4) and out["other"].shape == (PAPERS, 5)
    out["other"].sum().backward()
    assert any(parameter.grad is not None for parameter in layer.parameters())


def test_state_dict_has_the_names_of_files_of_weights(library: Library, tmp_path: pathlib.Path) -> None:
    layer = library.layer(HAN)
    state = layer.state_dict()
    assert {name: list(value.shape) for name, value in state.items()} == dict(layer._native.params())
    other = library.layer(HAN, seed=1)
    x = features()
    assert not torch.equal(layer(x), other(x))
    other.load_state_dict(state)
    assert torch.equal(layer(x), other(x))
    torch.save(state, tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt").keys() == state.keys()
    for same in [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]:
        assert torch.equal(same(x), layer(x))


def test_models_and_data_are_given_as_to_load_and_fit(library: Library, tmp_path: pathlib.Path) -> None:
    expected = library.layer(GAT)(features())
    dataset = hgnnc.Dataset(library.folder)
    arrays = hgnnc.Dataset.from_dict(dataset.to_dict())
    for data in [dataset, arrays, arrays.to_dict()]:
        layer = Layer(GAT, data, inputs=["Paper.x"], threads=1)
        assert torch.equal(layer(features()), expected)
        for same in [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]:
            assert torch.equal(same(features()), expected)
    # A line with a brace is a text.
    with pytest.raises(hgnnc.ModelError):
        Layer("model Net {", dataset)
    with pytest.raises(hgnnc.InputError, match="cannot read `.*nothing.hgnn`: No such file"):
        Layer(tmp_path / "nothing.hgnn", dataset)
    (tmp_path / "latin.hgnn").write_bytes(b"// \xfc")
    with pytest.raises(hgnnc.InputError, match="latin.hgnn` is not UTF-8 text: byte 3 begins no character"):
        Layer(tmp_path / "latin.hgnn", dataset)
    header = b'{"__metadata__":{}}'
    for name in ("net.hgnnx", "net"):
        (tmp_path / name).write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(hgnnc.InputError, match="is a trained model, without its source"):
            Layer(tmp_path / name, dataset)
    with pytest.raises(TypeError, match="data is None"):
        Layer(GAT, None)
    with pytest.raises(ValueError, match="`seed` is -1"):
        Layer(GAT, dataset, inputs=["Paper.x"], seed=-1)


def test_hetero_data_is_data_of_a_layer(library: Library) -> None:
    pytest.importorskip("torch_geometric")
    graph = hgnnc.Dataset(library.folder).to_pyg()
    layer = Layer(GAT, graph, inputs=["Paper.x"], threads=1)
    assert torch.equal(layer(features()), library.layer(GAT)(features()))


def test_dropout_follows_the_mode_and_the_generator(library: Library) -> None:
    layer = library.layer(HAN.replace("heads: 2,", "heads: 2, dropout: 0.5,"))
    x = features()
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    layer.train()
    torch.manual_seed(4)
    first, second = layer(x), layer(x)
    torch.manual_seed(4)
    assert torch.equal(first, layer(x)) and not torch.equal(first, second)
    # The masks of the backward pass are those of the forward pass, even if another call came between.
    x.requires_grad_()
    torch.manual_seed(4)
    expected = torch.autograd.grad(layer(x).sum(), x)[0]
    torch.manual_seed(4)
    first = layer(x)
    layer(x)
    assert torch.equal(torch.autograd.grad(first.sum(), x)[0], expected)


def test_wrong_calls(library: Library) -> None:
    layer = library.layer(GAT)
    with pytest.raises(TypeError, match="Paper.x has dtype torch.float64"):
        layer(features().double())
    with pytest.raises(ValueError, match="not \\(9, 5\\)"):
        layer(torch.zeros(3, 5))
    with pytest.raises(TypeError, match="takes 1 inputs"):
        layer()
    with pytest.raises(ValueError, match="'Paper.y'"):
        layer({"Paper.y": features()})
    with pytest.raises(TypeError, match="sparse"):
        layer(features().to_sparse())
    with pytest.raises(hgnnc.ModelError, match="GatConf"):
        library.layer(GAT.replace("GatConv(", "GatConf("))
    with pytest.raises(ValueError, match="Author.y"):
        Layer(GAT, library.folder, inputs=["Author.y"])


def copy_weights(layer: Layer, weights: dict[str, torch.Tensor]) -> None:
    state = layer.state_dict()
    assert set(state) == set(weights), list(state)
    layer.load_state_dict({name: weights[name].detach().reshape(value.shape) for name, value in state.items()})


def same(layer: Layer, x: torch.Tensor, expected: torch.Tensor, theirs: torch.Tensor) -> None:
    """Compares outputs and gradients of the input, with a random gradient of the output."""
    found = layer(x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    by = torch.randn(found.shape, generator=torch.Generator().manual_seed(2))
    ours = torch.autograd.grad((found * by).sum(), x)[0]
    torch.testing.assert_close(ours, torch.autograd.grad((expected * by).sum(), theirs)[0], rtol=1e-5, atol=1e-5)


def key(layer: Layer, *parts: str) -> str:
    found = [name for name in layer.state_dict() if all(part in name.split(".") for part in parts)]
    assert len(found) == 1, (parts, list(layer.state_dict()))
    return found[0]


def test_gat_is_that_of_pyg(library: Library) -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    conv = nn.GATConv(5, 4, heads=3, add_self_loops=False)
    torch.nn.init.normal_(conv.bias)
    layer = library.layer(GAT)
    copy_weights(
        layer,
        {
            key(layer, "w"): conv.lin.weight.T,
            key(layer, "a_src"): conv.att_src,
            key(layer, "a_dst"): conv.att_dst,
            key(layer, "b"): conv.bias,
        },
    )
    x, theirs = features().requires_grad_(), features().requires_grad_()
    same(layer, x, conv(theirs, torch.from_numpy(library.cites).long()), theirs)


def test_rgcn_is_that_of_pyg(library: Library) -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    conv = nn.RGCNConv(5, 4, num_relations=2)
    torch.nn.init.normal_(conv.bias)
    text = RGCN.replace("    let same = linear(Paper.x, 5)\n", "").replace("    output other: Paper = same", "")
    layer = library.layer(text)
    copy_weights(
        layer,
        {
            key(layer, "w_self"): conv.root,
            key(layer, "w", "cites"): conv.weight[0],
            key(layer, "w", "PAP"): conv.weight[1],
            key(layer, "b"): conv.bias,
        },
    )
    cites, pap = torch.from_numpy(library.cites).long(), edges(library.pap)
    kinds = torch.cat([torch.zeros(cites.shape[1]), torch.ones(pap.shape[1])]).long()
    x, theirs = features().requires_grad_(), features().requires_grad_()
    same(layer, x, conv(theirs, torch.cat([cites, pap], dim=1), kinds), theirs)


def test_han_is_that_of_pyg(library: Library) -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    kinds = [("paper", "PAP", "paper"), ("paper", "PAPAP", "paper")]
    conv = nn.HANConv({"paper": 5}, 8, (["paper"], kinds), heads=2)
    with torch.no_grad():
        # The paper's projection has no bias.
        conv.proj["paper"].bias.zero_()
        torch.nn.init.normal_(conv.k_lin.bias)
    layer = library.layer(HAN)
    weights = {
        key(layer, "w"): conv.proj["paper"].weight.T,
        key(layer, "w_s"): conv.k_lin.weight.T,
        key(layer, "b_s"): conv.k_lin.bias,
        key(layer, "q"): conv.q,
    }
    for name in ["PAP", "PAPAP"]:
        weights[key(layer, "a_src", name)] = conv.lin_src[f"paper__{name}__paper"]
        weights[key(layer, "a_dst", name)] = conv.lin_dst[f"paper__{name}__paper"]
    copy_weights(layer, weights)
    x, theirs = features().requires_grad_(), features().requires_grad_()
    graphs = {kinds[0]: edges(library.pap), kinds[1]: edges(library.papap)}
    same(layer, x, conv({"paper": theirs}, graphs)["paper"], theirs)
