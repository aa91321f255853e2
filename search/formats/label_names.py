"""The XML files in which Mulan names the labels among the columns of an ARFF file."""

from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from search.errors import DataError
from search.formats.files import content


def read(path: Path) -> tuple[str, ...]:
    """Give the labels' names in the file's order: the `name` of each element `label`.

    Labels within labels (a hierarchy) are labels too. A document type is refused, and with it all
    entities: nothing in the file can grow, or make us open another one.

    Raises:
        DataError: The file is missing, damaged, or names no label, or one twice; the message names
            the file and the line.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    names: dict[str, int] = {}

    def refuse(*_: object) -> NoReturn:
        raise DataError(
            f"{path}, line {parser.CurrentLineNumber}: a document type (DOCTYPE) is not allowed"
        )

    def take(element: str, attributes: dict[str, str]) -> None:
        if element.rpartition(" ")[2] != "label":
            return
        line = parser.CurrentLineNumber
        name = attributes.get("name")
        if not name:
            raise DataError(f"{path}, line {line}: a label without a name")
        if name in names:
            raise DataError(
                f"{path}, line {line}: the label {name!r} was named in line {names[name]} already"
            )
        names[name] = line

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = take
    try:
        parser.Parse(content(path), True)
    # What else it raises concerns the encoding that the file says it has.
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise DataError(
            f"{path}, line {parser.CurrentLineNumber}: not well-formed XML: {error}"
        ) from error
    if not names:
        raise DataError(f"{path} names no label; expected are elements <label name=...>")
    return tuple(names)
