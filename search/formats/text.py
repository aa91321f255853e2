"""Plain text in UTF-8, read line by line whatever its byte order mark and its line ends."""

from pathlib import Path

from search.errors import DataError
from search.formats import files


def read(path: Path) -> str:
    r"""Give a text of at least one line, each of them ended by `\n`, the last one too.

    A byte order mark is dropped and `\r\n` becomes `\n`; nothing else ends a line. The file may be
    gzipped.

    Raises:
        DataError: The file cannot be read, is empty, is not UTF-8 or holds a NUL, as binary files
            do; the message names the file and the line.
    """
    text = files.text(path).replace("\r\n", "\n")
    if not text:
        raise DataError(f"{path} is empty; at least one line of text is needed")
    nul = text.find("\0")
    if nul >= 0:
        line = text.count("\n", 0, nul) + 1
        raise DataError(f"{path}, line {line}: a NUL character, which text does not have")
    return text if text.endswith("\n") else f"{text}\n"


def lines(text: str) -> list[str]:
    r"""Give the lines of what `read` gave, without their `\n`."""
    return text.split("\n")[:-1]


def stripped(text: str) -> str:
    """Give the same text without the blanks at both ends of each line."""
    return "".join(f"{line.strip(' ')}\n" for line in lines(text))


def cut(text: str, *, path: Path) -> dict[str, str]:
    """Cut a text into three at ends of lines: first train, then 5 % validation, then 5 % test.

    Raises:
        DataError: There are fewer than three lines; the message names `path`.
    """
    all_lines = lines(text)
    held_out = max(1, len(all_lines) // 20)
    train = len(all_lines) - 2 * held_out
    if train < 1:
        raise DataError(
            f"{path} has {len(all_lines)} line{'s' if len(all_lines) > 1 else ''}; cutting it into "
            "train, validation and test at ends of lines takes at least 3"
        )
    bounds = {
        "train": (0, train),
        "validation": (train, train + held_out),
        "test": (train + held_out, len(all_lines)),
    }
    return {
        name: "".join(f"{line}\n" for line in all_lines[first:end])
        for name, (first, end) in bounds.items()
    }
