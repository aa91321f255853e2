"""Plotly's own JavaScript out of the installed wheel, and the style rules that it brings.

The package is never imported: it would bring pandas along where that is installed, and takes long.
Under the pages' policy the script may not write its rules into the page, so that they are read out
of it and served as a style sheet; see Note [Figures are Plotly JSON] in `service/README.md`.
"""

import gzip
import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, final

_RULES: Final = re.compile(r'=\{"X,X div":.*?\};', re.DOTALL)
_RULE: Final = re.compile(r"""(?:"([^"]*)"|(\w+)):(?:"([^"]*)"|'([^']*)')""")
_INJECTED: Final = re.compile(
    r'document\.getElementById\("([0-9a-f]{64})"\)\)\{var \w+=document\.createElement\("style"\)'
)


@final
@dataclass(frozen=True)
class PlotlyBundle:
    """One version of Plotly's JavaScript."""

    file: Path
    version: str

    @property
    def address(self) -> str:
        """Where pages load it from; another version has another address."""
        return f"/assets/plotly.min.js?v={self.version}"

    @property
    def style_address(self) -> str:
        """Where pages load its rules from."""
        return f"/assets/plotly.css?v={self.version}"

    @property
    def script(self) -> str:
        """The whole text, 5 MB, read anew: reports alone take it in."""
        return self.file.read_text(encoding="utf-8")

    @cached_property
    def compressed(self) -> bytes:
        """The script as gzip, made when it is first asked for."""
        return gzip.compress(self.file.read_bytes(), 6, mtime=0)

    @cached_property
    def style(self) -> str:
        """Its rules as a style sheet: the last one first, as the script would put them."""
        return self._read[0]

    @cached_property
    def style_ids(self) -> tuple[str, ...]:
        """Ids of styles that it adds for maps, unless a page has an element of that id already."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[str, tuple[str, ...]]:
        text = self.script
        found = _RULES.search(text)
        if found is None:
            raise RuntimeError(
                f"Plotly {self.version} in {self.file} has no style rules to be read"
            )
        rules = [
            (quoted or bare, double or single)
            for quoted, bare, double, single in _RULE.findall(found[0])
        ]
        lines = [f"{_selector(selector)} {{{rule}}}" for selector, rule in reversed(rules)]
        return "\n".join(lines) + "\n", tuple(_INJECTED.findall(text))


def _selector(short: str) -> str:
    long = re.sub("^,", " ,", short).replace("X", ".js-plotly-plot .plotly")
    return long.replace("Y", ".plotly-notifier")


@cache
def plotly_bundle() -> PlotlyBundle:
    """That of the wheel that is installed.

    Raises:
        RuntimeError: there is none.
    """
    package = find_spec("plotly")
    if package is None or not package.submodule_search_locations:
        raise RuntimeError("the package plotly is not installed; pip install 'reflectory'")
    file = Path(package.submodule_search_locations[0], "package_data", "plotly.min.js")
    return PlotlyBundle(file, version("plotly"))
