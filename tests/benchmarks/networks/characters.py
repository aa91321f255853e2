"""A small transformer that says the next character of Python sources, trained here."""

import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.nn import functional as F

from search.graphs.metrics import Agreement, Kl
from tests.benchmarks.networks.case import Case

LAYERS, WIDTH, HEADS, LENGTH, SYMBOLS = 2, 128, 4, 64, 128
STEPS, BATCH, RATE = 300, 16, 2e-3
SAMPLES = 240
_NEVER = -1e9

Weights = Mapping[str, torch.Tensor]


def characters(folder: Path | None) -> Case:
    """The network with samples; nothing is read from the folder."""
    del folder
    text = _text()
    held_out = len(text) * 4 // 5
    weights = _trained(text[:held_out])
    generator = np.random.default_rng(0)
    starts = generator.integers(held_out, len(text) - LENGTH, SAMPLES)
    return Case(
        title="transformer",
        original=_file({name: value.detach().numpy() for name, value in weights.items()}),
        arrays={"tokens": np.stack([text[start : start + LENGTH] for start in starts])},
        metric=Kl(),
        decisions=Agreement(),
        outputs=("y",),
        data=f"{SAMPLES} pieces of {LENGTH} characters of Python's own sources; trained here for "
        f"{STEPS} steps of {BATCH} pieces of other ones ({LAYERS} layers, width {WIDTH})",
    )


def _text() -> np.ndarray:
    """ASCII of the standard library."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    whole = "".join(path.read_text(errors="ignore") for path in files)
    return np.frombuffer(whole.encode("ascii", errors="ignore"), np.uint8).astype(np.int64)


def _trained(text: np.ndarray) -> Weights:
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        scale = shape[0] ** -0.5 if len(shape) > 1 else 1
        return (torch.randn(shape, generator=generator) * scale).requires_grad_()

    weights: dict[str, torch.Tensor] = {
        "table": drawn(SYMBOLS, WIDTH),
        "places": drawn(LENGTH, WIDTH),
        "out": drawn(WIDTH, SYMBOLS),
    }
    for layer in range(LAYERS):
        weights[f"{layer}.qkv"] = drawn(WIDTH, 3 * WIDTH)
        weights[f"{layer}.mix"] = drawn(WIDTH, WIDTH)
        weights[f"{layer}.up"] = drawn(WIDTH, 4 * WIDTH)
        weights[f"{layer}.down"] = drawn(4 * WIDTH, WIDTH)
    optimizer = torch.optim.AdamW(list(weights.values()), lr=RATE, weight_decay=0.01)
    source = torch.from_numpy(text)
    for step in range(STEPS):
        starts = torch.randint(len(text) - LENGTH - 1, (BATCH,), generator=generator)
        pieces = torch.stack([source[start : start + LENGTH + 1] for start in starts.tolist()])
        logits = _logits(weights, pieces[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, SYMBOLS), pieces[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / STEPS)
        optimizer.step()
    return weights


def _logits(weights: Weights, tokens: torch.Tensor) -> torch.Tensor:
    """`[B, T, SYMBOLS]` of tokens `[B, T]`."""
    state = weights["table"][tokens] + weights["places"]
    for layer in range(LAYERS):
        normed = F.layer_norm(state, (WIDTH,))
        heads = (normed @ weights[f"{layer}.qkv"]).reshape(*tokens.shape, 3, HEADS, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(*tokens.shape, WIDTH)
        state = state + mixed @ weights[f"{layer}.mix"]
        hidden = F.relu(F.layer_norm(state, (WIDTH,)) @ weights[f"{layer}.up"])
        state = state + hidden @ weights[f"{layer}.down"]
    return F.layer_norm(state, (WIDTH,)) @ weights["out"]


def _file(weights: Mapping[str, np.ndarray]) -> bytes:
    """The same in ONNX, with probabilities at the end."""
    size = WIDTH // HEADS
    constants = {
        **weights,
        "mask": np.triu(np.full((LENGTH, LENGTH), _NEVER, np.float32), 1),
        "root": np.array(size**-0.5, np.float32),
        "ones": np.ones(WIDTH, np.float32),
        "split": np.array([0, LENGTH, 3, HEADS, size]),
        "join": np.array([0, LENGTH, WIDTH]),
        "first": np.array([0]),
    }
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["looked_up"]),
        helper.make_node("Add", ["looked_up", "places"], ["s0"]),
    ]

    def add(operator: str, inputs: list[str], output: str, **given: Any) -> None:
        nodes.append(helper.make_node(operator, inputs, [output], **given))

    for layer in range(LAYERS):
        n = f"n{layer}."
        add("LayerNormalization", [f"s{layer}", "ones"], f"{n}1")
        add("MatMul", [f"{n}1", f"{layer}.qkv"], f"{n}2")
        add("Reshape", [f"{n}2", "split"], f"{n}3")
        add("Transpose", [f"{n}3"], f"{n}4", perm=[2, 0, 3, 1, 4])
        for place, name in enumerate("qkv"):
            constants[f"at{place}"] = np.array(place)
            add("Gather", [f"{n}4", f"at{place}"], f"{n}{name}")
        add("Transpose", [f"{n}k"], f"{n}5", perm=[0, 1, 3, 2])
        add("MatMul", [f"{n}q", f"{n}5"], f"{n}6")
        add("Mul", [f"{n}6", "root"], f"{n}7")
        add("Add", [f"{n}7", "mask"], f"{n}8")
        add("Softmax", [f"{n}8"], f"{n}9", axis=-1)
        add("MatMul", [f"{n}9", f"{n}v"], f"{n}10")
        add("Transpose", [f"{n}10"], f"{n}11", perm=[0, 2, 1, 3])
        add("Reshape", [f"{n}11", "join"], f"{n}12")
        add("MatMul", [f"{n}12", f"{layer}.mix"], f"{n}13")
        add("Add", [f"s{layer}", f"{n}13"], f"{n}14")
        add("LayerNormalization", [f"{n}14", "ones"], f"{n}15")
        add("MatMul", [f"{n}15", f"{layer}.up"], f"{n}16")
        add("Relu", [f"{n}16"], f"{n}17")
        add("MatMul", [f"{n}17", f"{layer}.down"], f"{n}18")
        add("Add", [f"{n}14", f"{n}18"], f"s{layer + 1}")
    add("LayerNormalization", [f"s{LAYERS}", "ones"], "last")
    add("MatMul", ["last", "out"], "logits")
    add("Softmax", ["logits"], "y", axis=-1)
    del constants["first"]
    graph = helper.make_graph(
        nodes,
        "characters",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["N", LENGTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", LENGTH, SYMBOLS])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()
