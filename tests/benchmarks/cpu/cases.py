"""The points at which times are taken: those of the papers, and the corners around them."""

from dataclasses import dataclass, field
from typing import Any, Literal

from models.model import ModelSpec
from models.spec import Signature

Mode = Literal["train", "infer"]
BOTH: tuple[Mode, ...] = ("train", "infer")


@dataclass(frozen=True)
class Case:
    """A model with the shape of its data; documents as `ModelSpec` takes them."""

    name: str
    architecture: dict[str, Any]
    parametrization: dict[str, Any]
    steps: int
    batch: int
    inputs: int = 1
    modes: tuple[Mode, ...] = BOTH
    reflector_loop: bool = False
    """whether the papers' loop over reflectors takes part: it is slow"""
    note: str = ""
    outputs: int = field(default=10)

    @property
    def spec(self) -> ModelSpec:
        """The model."""
        signature = Signature(
            input_size=self.inputs, sequence_length=self.steps, output_size=self.outputs
        )
        return ModelSpec.model_validate(
            {
                "architecture": self.architecture,
                "parametrization": self.parametrization,
                "signature": signature,
            }
        )


def _rnn(size: int, activation: str = "tanh") -> dict[str, Any]:
    return {"kind": "rnn", "hidden_size": size, "activation": activation}


def _gru(size: int, reset: str = "before") -> dict[str, Any]:
    # As the papers start gates for hundreds of steps; gradients otherwise vanish on the way.
    return {"kind": "gru", "hidden_size": size, "reset": reset, "carry_bias": 5.0}


def _torchs_gru(size: int) -> dict[str, Any]:
    """With both biases of torch.nn.GRU, as one that was trained there and compressed here."""
    return {**_gru(size, "after"), "candidate_bias": True}


def _lstm(size: int) -> dict[str, Any]:
    return {"kind": "lstm", "hidden_size": size}


def _spectral(m1: int, m2: int) -> dict[str, Any]:
    return {"kind": "householder_svd", "m1": m1, "m2": m2}


def _low_rank(d: int) -> dict[str, Any]:
    return {"kind": "low_rank_diagonal", "d": d}


def _rotations(count: int) -> dict[str, Any]:
    return {"kind": "packed_rotations", "count": count}


_DENSE = {"kind": "dense"}
_RESET = "resets before its matrix, torch's GRU after"

SEQUENCES = (
    Case(
        "spectral RNN n128 m16+16 B128", _rnn(128), _spectral(16, 16), 784, 128, reflector_loop=True
    ),
    Case(
        "spectral RNN n128 m16+16 B128 leaky",
        _rnn(128, "leaky_relu"),
        _spectral(16, 16),
        784,
        128,
        modes=("train",),
        note="torch's RNN has relu in its place",
    ),
    Case("spectral RNN n128 m16+16 B32", _rnn(128), _spectral(16, 16), 784, 32),
    Case("spectral RNN n256 m16+16 B32", _rnn(256), _spectral(16, 16), 784, 32),
    Case("spectral RNN n512 m16+16 B20", _rnn(512), _spectral(16, 16), 300, 20, inputs=128),
    Case("spectral RNN n32 m8+8 B128", _rnn(32), _spectral(8, 8), 100, 128, inputs=8),
    Case("spectral RNN n128 m128+128 B128", _rnn(128), _spectral(128, 128), 784, 128),
    Case("rotations RNN n128 k10 B128", _rnn(128), _rotations(10), 784, 128),
    Case("rotations RNN n128 k127 B128", _rnn(128), _rotations(127), 784, 128),
    Case("low-rank GRU n128 d24 B20", _gru(128), _low_rank(24), 784, 20, note=_RESET),
    Case("low-rank GRU n128 d24 B20 reset after", _gru(128, "after"), _low_rank(24), 784, 20),
    Case("low-rank GRU n128 d24 B128", _gru(128), _low_rank(24), 784, 128, note=_RESET),
    Case("low-rank GRU n128 d24 B1", _gru(128), _low_rank(24), 784, 1, note=_RESET),
    Case("low-rank GRU n256 d24 B20", _gru(256), _low_rank(24), 200, 20, note=_RESET),
    Case("low-rank GRU n256 d32 B20", _gru(256), _low_rank(32), 200, 20, note=_RESET),
    Case("low-rank GRU n512 d4 B20", _gru(512), _low_rank(4), 200, 20, note=_RESET),
    Case("low-rank GRU n512 d64 B20", _gru(512), _low_rank(64), 200, 20, note=_RESET),
    Case("torch's GRU, compressed n128 d24 B20", _torchs_gru(128), _low_rank(24), 784, 20),
    Case("torch's GRU, compressed n256 d32 B20", _torchs_gru(256), _low_rank(32), 200, 20),
    Case("torch's GRU, dense n128 B20", _torchs_gru(128), _DENSE, 784, 20),
    Case("low-rank LSTM n256 d32 B20", _lstm(256), _low_rank(32), 200, 20),
    Case("low-rank LSTM n1740 d300 B20", _lstm(1740), _low_rank(300), 20, 20, inputs=64),
    Case("dense RNN n128 B128", _rnn(128), _DENSE, 784, 128),
    Case("dense GRU n128 B20", _gru(128, "after"), _DENSE, 784, 20),
    Case("dense LSTM n128 B20", _lstm(128), _DENSE, 784, 20),
)

DEEP = (
    Case(
        "spectral MLP 40x128 m16+16 B128",
        {"kind": "mlp", "hidden_size": 128, "layers": 40},
        _spectral(16, 16),
        1,
        128,
        inputs=128,
        reflector_loop=True,
    ),
    Case(
        "spectral MLP 40x32 m8+8 B128",
        {"kind": "mlp", "hidden_size": 32, "layers": 40},
        _spectral(8, 8),
        1,
        128,
        inputs=128,
    ),
    Case(
        "spectral ResNet 20x2x128 m16+16 B128",
        {"kind": "resnet", "hidden_size": 128, "blocks": 20},
        {**_spectral(16, 16), "sigma_star": 0.0},
        1,
        128,
        inputs=128,
    ),
    Case(
        "low-rank highway 5x1024 d256 B128",
        {"kind": "highway", "hidden_size": 1024, "layers": 5},
        _low_rank(256),
        1,
        128,
        inputs=784,
    ),
)

# Small, and everything takes part.
QUICK = Case(
    "spectral RNN n32 m2+2 B4", _rnn(32), _spectral(2, 2), 12, 4, inputs=3, reflector_loop=True
)

BY_NAME = {case.name: case for case in (*SEQUENCES, *DEEP, QUICK)}
