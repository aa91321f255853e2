"""The registry of roles: a new one is a file, and a name here.

A use has the first role that takes it; `OtherRole` takes all that come to it.
"""

from models.graphs.layers.convolution_weights import (
    ConvolutionRole,
    GroupedConvolutionRole,
    TransposedConvolutionRole,
)
from models.graphs.layers.embedding_weights import EmbeddingRole
from models.graphs.layers.other_weights import OtherRole, QuantizedRole
from models.graphs.layers.product_weights import BatchedProductRole, ProductRole
from models.graphs.layers.recurrent_weights import InputMatricesRole, StateMatricesRole
from models.graphs.layers.role import Role, Use

ROLES: tuple[type[Role], ...] = (
    ProductRole,
    BatchedProductRole,
    ConvolutionRole,
    GroupedConvolutionRole,
    TransposedConvolutionRole,
    InputMatricesRole,
    StateMatricesRole,
    EmbeddingRole,
    QuantizedRole,
    OtherRole,
)


def role_of(use: Use) -> Role:
    """The first role that takes a use."""
    return next(role for kind in ROLES if (role := kind.of(use)) is not None)
