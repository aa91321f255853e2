"""`errors.md`: the trees of errors, and how HTTP answers each."""

import inspect
from collections.abc import Iterator

import models.errors
import search.errors
import service.client.errors
import storage.errors
from service.cli import application
from service.errors import ANSWERS
from tests.references.markdown import flowing, table, written_by

_TREES = (
    ("The Python client", service.client.errors),
    ("Models", models.errors),
    ("Searches", search.errors),
    ("Storage", storage.errors),
)


def page() -> Iterator[str]:
    """The lines of the page."""
    yield "# Errors"
    yield ""
    yield written_by("the trees of the packages, and the server's table of answers")
    yield ""
    yield "## Exit codes of commands"
    yield ""
    yield flowing(str(application.info.epilog))
    for title, module in _TREES:
        yield ""
        yield f"## {title}"
        yield ""
        yield f"`{module.__name__}`:"
        yield ""
        yield "```text"
        text = inspect.cleandoc(module.__doc__ or "")
        yield text.split("\n\n", maxsplit=1)[1].strip()
        yield "```"
    yield ""
    yield "## Over HTTP"
    yield ""
    yield (
        "Errors are RFC 9457 problem documents. Each has `type`, `title`, `status` and `detail`, "
        "and `errors` where a document has faults: a list of paths and messages."
    )
    yield ""
    rows = (
        (
            f"`urn:reflectory:{answer.kind}`",
            f"{answer.status.value} {answer.status.phrase}",
            answer.title,
            f"`{error.__name__}`",
        )
        for error, answer in ANSWERS.items()
    )
    yield from table(("type", "status", "title", "error"), rows)
