"""Things named in short: by the beginning of an id, by name, or as the latest."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import typer

if TYPE_CHECKING:
    from service.client import Client, Refused

SHORT = 8
"""Letters of an id that a list shows."""

_LEAST = 4
"""Letters of an id that may stand for all of it."""
_NEAREST = 3
"""How many are named where nothing fits."""
_MOST_CANDIDATES = 10
_ID = re.compile(r"[0-9a-f]{12}")
_LATEST = re.compile(r"latest(?:~0*([0-9]+))?")
_MOST_DIGITS = 18
"""Of a number that is still less than there are things of any kind."""


class Named(Protocol):
    """What has an id and a name."""

    @property
    def id(self) -> str:
        """Its whole id."""
        ...

    @property
    def name(self) -> str:
        """What people call it."""
        ...


@dataclass(frozen=True)
class _Sort:
    noun: str
    nouns: str
    newest_first: "Callable[[Client], Iterator[Named]]"
    like: "Callable[[Client, str], Iterator[Named]]"
    """Those that a text may stand for, others among them."""


_SORTS: Mapping[str, _Sort] = {
    "study_id": _Sort(
        "study",
        "studies",
        lambda client: client.studies(),
        # Of studies there may be many, and the server looks for them.
        lambda client, text: client.studies(text=text),
    ),
    "collection_id": _Sort(
        "collection",
        "collections",
        lambda client: client.collections(),
        lambda client, _text: client.collections(),
    ),
    "dataset_id": _Sort(
        "data set",
        "data sets",
        lambda client: client.datasets(),
        lambda client, _text: client.datasets(),
    ),
    "model_id": _Sort(
        "model",
        "models",
        lambda client: client.models(),
        lambda client, _text: client.models(),
    ),
}
"""By parameter of a command."""


def resolved(client: "Client", given: Mapping[str, Any]) -> dict[str, Any]:
    """A command's arguments, with whole ids in the place of what was typed.

    A whole id stays as it is. Other text is an exact name, the beginning of an id (4 letters or
    more), `latest`, or `latest~N`: the N-th before it.

    Raises:
        Refused: nothing fits, or several things do; the problem names them.
        typer.BadParameter: `--yes` goes with a reference that means another thing tomorrow.
    """
    found = dict(given)
    for parameter, sort in _SORTS.items():
        text = given.get(parameter)
        if text is None:
            continue
        if given.get("yes") and _LATEST.fullmatch(text):
            raise typer.BadParameter(
                f"--yes goes with an id or a name; {text!r} may be another {sort.noun} by now"
            )
        found[parameter] = _id_of(client, sort, text)
    return found


def described(thing: Named) -> str:
    """A thing for people: `1a0fc784 "row digits"`."""
    return f'{thing.id[:SHORT]} "{thing.name}"'


def _id_of(client: "Client", sort: _Sort, text: str) -> str:
    if _ID.fullmatch(text):
        return text
    if latest := _LATEST.fullmatch(text):
        return _latest(client, sort, text, back=int((latest[1] or "0")[:_MOST_DIGITS]))
    is_beginning = len(text) >= _LEAST
    fitting = [
        one
        for one in sort.like(client, text)
        if one.name == text or (is_beginning and one.id.startswith(text))
    ]
    if len(fitting) == 1:
        return fitting[0].id
    if fitting:
        raise _several_fit(sort, text, fitting)
    raise _none_fits(sort, text, list(islice(sort.newest_first(client), _NEAREST)))


def _latest(client: "Client", sort: _Sort, text: str, *, back: int) -> str:
    newest = list(islice(sort.newest_first(client), back + 1))
    if len(newest) <= back:
        count = f"there are {len(newest)}" if newest else f"there are no {sort.nouns}"
        raise _refused(f"{text!r} is no {sort.noun}: {count}")
    return newest[back].id


def _none_fits(sort: _Sort, text: str, things: Sequence[Named]) -> "Refused":
    detail = (
        f"no {sort.noun} {text!r}; allowed are ids, {_LEAST} letters of their beginnings or more, "
        f"exact names, and latest"
    )
    if not things:
        return _refused(f"{detail}; there are no {sort.nouns}")
    return _refused(f"{detail}; the newest {sort.nouns} are", things)


def _several_fit(sort: _Sort, text: str, fitting: Sequence[Named]) -> "Refused":
    rest = f"; the newest {_MOST_CANDIDATES} are" if len(fitting) > _MOST_CANDIDATES else ""
    detail = f"{text!r} means {len(fitting)} {sort.nouns}; give more of the id{rest}"
    return _refused(detail, fitting[:_MOST_CANDIDATES])


def _refused(detail: str, things: Iterable[Named] = ()) -> "Refused":
    # Where nothing is refused, nothing of it is imported.
    from service.client import Refused
    from service.http.problem_document import Problem, ProblemFault

    named = tuple(ProblemFault(path=thing.id, message=f'"{thing.name}"') for thing in things)
    return Refused(Problem(title="No such thing", status=404, detail=detail, errors=named))
