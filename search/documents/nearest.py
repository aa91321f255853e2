"""What somebody meant who misspelt a name, and what is allowed in its place."""

from collections.abc import Iterable
from difflib import get_close_matches

_ALIKE = 0.6
"""How alike two names are at least, 0 to 1, of which one is taken for the other misspelt."""
_MANY = 20
_NEAREST = 5
"""Of many allowed names so many are shown: those most alike."""


def meant(name: str, allowed: Iterable[str]) -> str:
    """The question after a name that is misspelt: `; did you mean 'digits'?`, or nothing."""
    near = get_close_matches(name, list(allowed), n=1, cutoff=_ALIKE)
    return f"; did you mean {near[0]!r}?" if near else ""


def allowed_instead(name: str, allowed: Iterable[str], *, rest: str) -> str:
    """What may stand in the place of a name that is not known, from its sentence on.

    Args:
        name: the one that is not known.
        allowed: those that are.
        rest: where all of them are named, if they are too many for a sentence.
    """
    known = list(allowed)
    if not known:
        return ""
    question = meant(name, known)
    text = f"{question} allowed are" if question else "; allowed are"
    if len(known) <= _MANY:
        return f"{text} {', '.join(known)}"
    near = get_close_matches(name, known, n=_NEAREST, cutoff=0.0)
    return f"{text} {len(known)}, such as {', '.join(near)}; {rest}"
