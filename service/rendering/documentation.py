"""The documentation as pages of the server's own, from the Markdown files that it was built with.

A wheel brings them along in `service/help`; in a checkout they are those of `deploy/docs`. Pages
keep their paths, so that the links between them hold, on a code host and here alike.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from service.rendering.anchors import anchor

_PACKAGED: Final = Path(__file__).parents[1] / "help"
_CHECKED_OUT: Final = Path(__file__).parents[2] / "deploy" / "docs"

INDEX: Final = "index.md"


class Documentation:
    """The pages and pictures of one folder. What is not there when it is made is not served."""

    def __init__(self, folder: Path | None = None) -> None:
        """By default those of the wheel, or of the checkout."""
        self._folder = folder or (_PACKAGED if _PACKAGED.is_dir() else _CHECKED_OUT)

    @cached_property
    def _files(self) -> Mapping[str, Path]:
        """Every file that is served by its path: nothing else is reached by any path."""
        return {
            path.relative_to(self._folder).as_posix(): path
            for suffix in ("md", "svg")
            for path in sorted(self._folder.rglob(f"*.{suffix}"))
        }

    def page(self, path: str) -> tuple[str, Markup] | None:
        """A page's title and its HTML; None where there is no such page."""
        file = self._files.get(path)
        if file is None or file.suffix != ".md":
            return None
        return _rendered(file)

    def picture(self, path: str) -> str | None:
        """A picture as SVG; None where there is no such picture."""
        file = self._files.get(path)
        return None if file is None or file.suffix != ".svg" else file.read_text(encoding="utf-8")


@cache
def _rendered(file: Path) -> tuple[str, Markup]:
    text = file.read_text(encoding="utf-8")
    title = text.partition("\n")[0].lstrip("# ")
    return title, Markup(_markdown().render(text))


def _markdown() -> MarkdownIt:
    reader = MarkdownIt("commonmark").enable("table")
    reader.add_render_rule("heading_open", _heading)
    reader.add_render_rule("fence", _code)
    reader.add_render_rule("table_open", _table)
    reader.add_render_rule("table_close", _table_end)
    for name in ("th_open", "td_open"):
        reader.add_render_rule(name, _cell)
    return reader


def _heading(
    self: RendererHTML, tokens: Sequence[Token], number: int, options: Any, environment: Any
) -> str:
    token = tokens[number]
    text = "".join(part.content for part in tokens[number + 1].children or ())
    token.attrSet("id", anchor(text))
    environment["heading"] = text
    return self.renderToken(tokens, number, options, environment)


def _code(
    self: RendererHTML, tokens: Sequence[Token], number: int, options: Any, environment: Any
) -> str:
    """Long lines are scrolled to, with the keyboard too."""
    block = self.fence(tokens, number, options, environment)
    return block.replace("<pre>", '<pre class="wide" tabindex="0">', 1)


def _table(
    self: RendererHTML, tokens: Sequence[Token], number: int, options: Any, environment: Any
) -> str:
    """A table in a box that scrolls, named by its heading and, where that has several, a number."""
    heading = environment.get("heading", "Table")
    tables = environment.setdefault("tables", Counter[str]())
    tables[heading] += 1
    label = heading if tables[heading] == 1 else f"{heading}, table {tables[heading]}"
    box = Markup('<div class="wide" tabindex="0" role="region" aria-label="{}">').format(label)
    return f"{box}\n{self.renderToken(tokens, number, options, environment)}"


def _table_end(
    self: RendererHTML, tokens: Sequence[Token], number: int, options: Any, environment: Any
) -> str:
    return f"{self.renderToken(tokens, number, options, environment)}</div>\n"


def _cell(
    self: RendererHTML, tokens: Sequence[Token], number: int, options: Any, environment: Any
) -> str:
    """Numbers stand right by a class: the pages' policy allows no style in an element."""
    token = tokens[number]
    if token.attrs.pop("style", None) == "text-align:right":
        token.attrSet("class", "n")
    return self.renderToken(tokens, number, options, environment)
