"""What users call their files: text to be shown, and never part of a path."""

import unicodedata

_LONGEST = 200
_SHOWN = 80


def clean_name(name: str) -> str:
    """A name that can be shown on one line: signs that control or are none are left out."""
    shown = "".join(
        " " if unicodedata.category(sign)[0] in "CZ" else sign
        for sign in unicodedata.normalize("NFC", name)
    )
    return " ".join(shown.split())[:_LONGEST].strip() or "unnamed"


def name_of_file(filename: str) -> str:
    """The last part of what a browser or a client calls a file."""
    return clean_name(filename.replace("\\", "/").rpartition("/")[2])


def quoted_name(name: str) -> str:
    """A name as a message quotes it."""
    cleaned = clean_name(name)
    return repr(cleaned if len(cleaned) <= _SHOWN else f"{cleaned[:_SHOWN]}...")
