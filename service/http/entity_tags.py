"""Entity tags: how a client that has an answer already learns that it still holds.

Source: RFC 9110, sections 8.8.3 and 13.1.2.
"""

from importlib.metadata import version
from typing import Annotated, Any, Final

from fastapi import Header

IfNoneMatch = Annotated[
    str | None, Header(description="the `ETag` of an earlier answer; 304 while it holds")
]

# Asked once: it is read from a file, which takes a millisecond.
_PROGRAM: Final = version("reflectory")

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The answer is the one that the client has"}
}
"""For the responses of a route that knows entity tags."""


def tag_of(*data_versions: int) -> str:
    """The tag of what this program makes of these versions of the data."""
    return f'"{"-".join([_PROGRAM, *map(str, data_versions)])}"'


def is_named(if_none_match: str | None, tag: str) -> bool:
    """Whether an `If-None-Match` header names the (quoted) tag; weak ones compare alike here."""
    if if_none_match is None:
        return False
    listed = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return "*" in listed or tag in listed
