"""Numbers for tokens."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.math.initialisation import uniform_
from models.quantization import Quantised, Rows, Scheme

START = 0.1


class Embedding(nn.Module, Quantised):
    """A row of numbers for each token of a vocabulary, trained with the model.

    Rows start uniform in [-0.1, 0.1], after Zaremba, Sutskever and Vinyals (arXiv:1409.2329).
    """

    def __init__(self, vocabulary: int, features: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, features))
        uniform_(self.weight, -START, START, generator=generator)

    @property
    def vocabulary(self) -> int:
        """How many tokens there are; they are numbered from 0."""
        return self.weight.shape[0]

    def schemes(self) -> Mapping[str, Scheme]:
        """Frequent tokens have larger numbers than rare ones: each has a scale of its own."""
        return {"weight": Rows()}

    def forward(self, tokens: Tensor) -> Tensor:
        """`[...]` int64 -> `[..., features]`."""
        return F.embedding(tokens, self.weight)
