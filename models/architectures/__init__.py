"""How layers are joined.

The union is the registry: a new variant is one file and one name here.
"""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from models.architectures.architecture import Architecture
from models.architectures.gru import Gru
from models.architectures.highway import Highway
from models.architectures.lstm import Lstm
from models.architectures.mlp import Mlp
from models.architectures.resnet import Resnet
from models.architectures.rnn import Rnn
from models.architectures.urnn import Urnn

_Variants: TypeAlias = Rnn | Lstm | Gru | Urnn | Mlp | Resnet | Highway

AnyArchitecture: TypeAlias = Annotated[_Variants, Field(discriminator="kind")]
ARCHITECTURES: tuple[type[_Variants], ...] = get_args(_Variants)

__all__ = [
    "ARCHITECTURES",
    "AnyArchitecture",
    "Architecture",
    "Gru",
    "Highway",
    "Lstm",
    "Mlp",
    "Resnet",
    "Rnn",
    "Urnn",
]
