"""What every answer shares, and why the server refused."""

from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """The base of all answers: frozen, and newer fields are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


_A = TypeVar("_A", bound=Answer)


class Page(Answer, Generic[_A]):
    """One page of a list; `next_cursor` is null on the last."""

    items: list[_A]
    next_cursor: str | None = None


class FieldError(Answer):
    """One fault of a refused document: where, and what is wrong with it."""

    path: str = ""
    message: str


class Problem(Answer):
    """Why the server refused, as RFC 9457 has it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    errors: list[FieldError] = Field(default_factory=list[FieldError])

    def sentences(self) -> list[str]:
        """What a person reads: the detail, then one line per fault that it does not say already."""
        detail = self.detail or self.title
        faults = [f"{error.path}: {error.message}".removeprefix(": ") for error in self.errors]
        return [detail, *(fault for fault in faults if fault not in detail)]


class Downloaded(Answer):
    """A file that arrived whole: its bytes have the digest that the server named."""

    path: Path
    sha256: str
    size: int
