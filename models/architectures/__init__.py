"""How layers are joined.

The union is the registry: a new variant is one file and one name here.
"""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from models.architectures.architecture import Architecture
from models.architectures.gru import Gru
from models.architectures.lstm import Lstm
from models.architectures.rnn import Rnn
from models.architectures.urnn import Urnn

_Variants: TypeAlias = Rnn | Lstm | Gru | Urnn

AnyArchitecture: TypeAlias = Annotated[_Variants, Field(discriminator="kind")]
ARCHITECTURES: tuple[type[_Variants], ...] = get_args(_Variants)

__all__ = ["ARCHITECTURES", "AnyArchitecture", "Architecture", "Gru", "Lstm", "Rnn", "Urnn"]
