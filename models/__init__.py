"""Networks with structured weight matrices. Importing this runs no tensor operation."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.compression import compress

__all__ = ["compress"]


def __getattr__(name: str) -> Any:
    """Load what is public here when it is asked for: importing the package stays light.

    Raises:
        AttributeError: there is no such name.
    """
    if name != "compress":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from models.compression import compress

    return compress
