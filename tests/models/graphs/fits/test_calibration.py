import numpy as np
import pytest

from models.graphs.fits import Dense, LayerFitter, LowRank, SecondMoments, statistics_of
from models.graphs.layers import Layer, find_layers
from models.graphs.sessions import GraphSession
from tests.models.graphs.layer_graphs import GRAPHS, Array, Small, weight
from tests.models.graphs.layer_graphs import node as make_node

# Everything that a convolution read is looked at.
ALL_PATCHES = 10**6


def _statistics(small: Small) -> tuple[list[Layer], dict[str, list[SecondMoments]]]:
    model = small.model()
    layers = find_layers(model)
    found = statistics_of(model, layers, small.feeds(), most_patches=ALL_PATCHES)
    return layers, {name: list(one.moments or ()) for name, one in found.items()}


def _dense(moments: SecondMoments, size: int) -> Array:
    return moments.times(np.eye(size))


def _near(moments: SecondMoments, vectors: Array) -> bool:
    """Whether these are the vectors' moments, but for the 1e-5 that is added."""
    wanted = vectors.T.astype(np.float64) @ vectors / len(vectors)
    size = vectors.shape[1]
    return np.allclose(
        _dense(moments, size), wanted, atol=2e-5 * np.trace(wanted) / size, rtol=1e-4
    )


@pytest.mark.parametrize(
    "name",
    [
        "matmul",
        "gemm with transA",
        "gemm with transB",
        "convolution",
        "convolution SAME_UPPER",
        "convolution SAME_LOWER",
    ],
)
@pytest.mark.parametrize("choice", [Dense(bits=3), LowRank(rank=5)], ids=["bits", "rank"])
def test_the_local_error_is_what_outputs_lose(name: str, choice: Dense | LowRank) -> None:
    """Of one layer without a bias, the share of its outputs' energy, in onnxruntime."""
    small = GRAPHS[name]()
    model = small.model()
    node = model.graph.node[0]
    bare = [entry for entry in node.attribute if entry.name not in ("alpha", "beta")]
    del node.attribute[:], node.input[2:]
    node.attribute.extend(bare)
    (layer,) = find_layers(model)
    found = statistics_of(model, [layer], small.feeds(), most_patches=ALL_PATCHES)
    fit = LayerFitter(layer, found[layer.name]).fit(choice)
    rounded = layer.role.arrangement.restored(fit.matrices(layer))
    other = Small(small.kind, [node], {"w": rounded}, small.shape)
    wanted = [GraphSession(model.SerializeToString()).run(feed)["y"] for feed in small.feeds()]
    session = GraphSession(other.model().SerializeToString())
    lost = [session.run(feed)["y"] - y for feed, y in zip(small.feeds(), wanted, strict=True)]
    share = sum(float(np.square(y).sum()) for y in lost) / sum(
        float(np.square(y).sum()) for y in wanted
    )
    assert fit.error == pytest.approx(share, rel=0.01)


def test_inputs_of_a_recurrent_layer_are_its_steps() -> None:
    small = GRAPHS["lstm in both directions"]()
    _, found = _statistics(small)
    vectors = np.concatenate([feed["x"].reshape(-1, 17) for feed in small.feeds()])
    assert len(found["W"]) == 2
    assert all(_near(moments, vectors) for moments in found["W"])


def test_states_are_those_before_each_step_in_both_directions() -> None:
    """Against the equations of an RNN, `h = tanh(W x + R h + b)`, from its first states on."""
    small = GRAPHS["rnn in both directions"]()
    _, found = _statistics(small)
    w, r, b, first = (small.weights[name].astype(np.float64) for name in ("W", "R", "B", "h0"))
    for direction, moments in enumerate(found["R"]):
        read: list[Array] = []
        for feed in small.feeds():
            steps = feed["x"] if direction == 0 else feed["x"][::-1]
            h = first[direction]
            for x in steps:
                read.append(h)
                bias = b[direction].reshape(2, -1).sum(0)
                h = np.tanh(x @ w[direction].T + h @ r[direction].T + bias)
        assert _near(moments, np.concatenate(read))


def test_states_are_seen_though_the_graph_does_not_name_them() -> None:
    small = GRAPHS["lstm"]()
    named = _statistics(small)[1]["R"][0]
    last = make_node("LSTM", "x", "W", "R", "B", outputs=["", "y"], hidden_size=19)
    unnamed = _statistics(Small(small.kind, [last], small.weights, small.shape))[1]["R"][0]
    assert np.array_equal(_dense(named, 19), _dense(unnamed, 19))


def test_a_shared_weight_has_the_moments_of_all_its_readers() -> None:
    small = GRAPHS["shared"]()
    _, found = _statistics(small)
    first = np.concatenate([feed["x"] for feed in small.feeds()])
    second = np.tanh(first @ small.weights["w"])
    assert _near(found["w"][0], np.concatenate([first, second]))


def test_rows_of_a_table_are_counted_once_more_than_they_are_looked_up() -> None:
    small = GRAPHS["embedding"]()
    model = small.model()
    (layer,) = find_layers(model)
    feeds = [{"x": feed["x"] - 57 * (feed["x"] % 2)} for feed in small.feeds()]
    found = statistics_of(model, [layer], feeds)[layer.name].row_frequencies
    seen = np.concatenate([feed["x"].reshape(-1) for feed in small.feeds()])
    counts = np.array([1 + (seen == row).sum() for row in range(57)])
    assert found == pytest.approx(counts / counts.sum())


def test_frequent_rows_of_a_table_lose_less_by_low_rank() -> None:
    small = GRAPHS["embedding"]()
    model = small.model()
    (layer,) = find_layers(model)
    known = statistics_of(model, [layer], small.feeds())[layer.name]
    choice = LowRank(rank=6)
    aware = LayerFitter(layer, known).fit(choice)
    blind = LayerFitter(layer).fit(choice)
    u, s, v = np.linalg.svd(layer.matrices[0].astype(np.float64), full_matrices=False)
    assert blind.matrices(layer)[0] == pytest.approx((u[:, :6] * s[:6]) @ v[:6], abs=1e-5)
    frequencies = known.row_frequencies
    assert frequencies is not None
    lost = [
        float(frequencies @ np.square(fit.matrices(layer)[0] - layer.matrices[0]).sum(1))
        for fit in (aware, blind)
    ]
    assert lost[0] < 0.95 * lost[1]
    whole = float(frequencies @ np.square(layer.matrices[0]).sum(1))
    assert aware.error == pytest.approx(lost[0] / whole, rel=1e-4)


def test_many_columns_of_a_convolution_have_the_moments_of_its_channels() -> None:
    node = make_node("Conv", "x", "w")
    small = Small("convolution", [node], {"w": weight(2, 1400, 3)}, (2, 1400, 5))
    layers, found = _statistics(small)
    assert layers[0].columns == 4200
    samples = np.concatenate([feed["x"] for feed in small.feeds()])
    # Every place of the kernel reads a part of the positions: the middle one is read most.
    read = np.concatenate(
        [samples[:, :, at : at + 3].transpose(0, 2, 1).reshape(-1, 1400) for at in range(3)]
    )
    wanted = read.T.astype(np.float64) @ read / len(read)
    probe = np.random.default_rng(0).standard_normal((2, 4200))
    made = found["w"][0].times(probe).reshape(2, 1400, 3)
    expected = np.einsum("ock,cd->odk", probe.reshape(2, 1400, 3), wanted)
    assert made == pytest.approx(expected, abs=1e-3 * np.abs(expected).max())


def test_many_columns_of_a_product_have_mean_squares() -> None:
    node = make_node("MatMul", "x", "w")
    small = Small("product", [node], {"w": weight(4200, 2)}, (3, 4200))
    _, found = _statistics(small)
    squares = np.mean([np.square(feed["x"]).mean(0) for feed in small.feeds()], axis=0)
    assert found["w"][0].diagonal == pytest.approx(squares + 1e-5 * squares.mean(), rel=1e-3)
    assert found["w"][0].compensation is None


def test_positions_are_counted_for_each_run() -> None:
    expected = {
        "matmul": 12,
        "convolution": 2 * 7 * 10,
        "depthwise convolution": 2 * 5 * 4,
        "grouped convolution": 2 * 12,
        "transposed convolution": 2 * 5 * 6,
        "lstm in both directions": 9 * 3,
        "embedding": 0,
    }
    for name, positions in expected.items():
        small = GRAPHS[name]()
        model = small.model()
        layers = find_layers(model)
        found = statistics_of(model, layers, small.feeds())
        assert {found[layer.name].positions for layer in layers} == {positions}, name


def test_patches_are_drawn_by_the_seed() -> None:
    small = GRAPHS["convolution"]()
    model = small.model()
    (layer,) = find_layers(model)

    def moments(seed: int) -> Array:
        found = statistics_of(model, [layer], small.feeds(), most_patches=20, seed=seed)
        moments = found[layer.name].moments
        assert moments is not None
        return _dense(moments[0], layer.columns)

    assert np.array_equal(moments(1), moments(1))
    assert not np.array_equal(moments(1), moments(2))
