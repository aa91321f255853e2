"""The rules of the house: rooms, their size, their doors, their words, and the maps of them."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.command_help import all_help

ROOT = Path(__file__).parents[1]
PACKAGES = ("models", "search", "storage", "service")

HOUSED = ("search", "storage", "service")
"""Packages whose rooms are held to their size."""

MOST_MODULES = 16
"""About a dozen in a room; where there are more, there are two rooms."""

OPEN_ROOMS = (
    "search.agents",
    "search.documents",
    "search.formats",
    "search.graphs",
    "search.measuring",
    "search.training",
    "search.uploads",
    "storage.migrations",
    "storage.tables",
)
"""Rooms whose files are imported one by one: processes and clients that start from one of them are
to import no more, and tables are read by statements of all repositories."""

# Words that had a meaning in this project alone, and what they are called now.
PRIVATE_WORDS: Mapping[str, str] = {
    "surroundings": "sampler context",
    "recollection": "sampler cache",
    "outlook": "predicted errors",
    "errand": "command",
    "keeper": "node agent",
    "seat": "reservation",
    "desk": "handler",
    "floor": "dispatcher",
    "mirror": "Optuna study",
    "steering": "commands",
    "roomwatch": "store watch",
    "outline": "trial summary",
    "bell": "notifier",
    "lane": "measuring slot, measurement lock",
    "twin": "dense baseline",
    "showing": "dashboard sync",
    "upkeep": "hooks",
}
STANDARD = {"Mirror", "mirror", "mirrors", "floor"}
"""A keeper of leases keeps leases, a download has mirrors, and `math` has a `floor`."""
KEPT = {
    "dense_twin": ("models/", "search/"),
    "lane": ("service/api/devices/", "service/commands/shown/tables.py"),
    "lanes": ("search/dispatch/coordinator_report.py", "service/observability/device_views.py"),
}
"""Names that clients and stored rows go by, and where alone they may stand: of a report and of
`ModelSpec`, of the answer to `GET /v1/devices`, and of the document in a coordinator's row."""

# Likewise in what users and newcomers read: patterns of whole words.
PRIVATE_TEXT: Mapping[str, str] = {
    r"twins?": "dense baseline",
    r"lanes?": "measurement lock",
    r"errands?": "command",
    r"foreign (trials?|ones)": "warm-start trials",
    r"told": "notified",
    r"keepers?": "node agent",
    r"trainable numbers": "parameters",
    r"as usual": "default",
    r"what mattered": "hyperparameter importance",
    r"good end": "failed or was cancelled",
    r"late words": "reports after the lease has expired",
    r"taken for heard": "counts as delivered",
    r"asked again after": "retried after",
    r"given away": "freely licensed",
    r"away with it": "delete it",
    r"counts for nothing": "is ignored",
    r"stores where it is": "saves a checkpoint",
}
DOCSTRINGS = {ROOT / "deploy/docs/reference" / name for name in ("http.md", "python.md")}
"""Pages that are docstrings, which are mended where they stand."""
ASK_AND_TELL = "search/README.md"
"""Says what Optuna is told."""


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str | None:
    """The room of a module: the folder right below its package."""
    parts = module.split(".")
    folder = ROOT.joinpath(*parts[:2])
    return ".".join(parts[:2]) if len(parts) > 2 and folder.is_dir() else None


def imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno


@pytest.mark.parametrize("package", PACKAGES)
def test_a_map_names_files_that_exist(package: str) -> None:
    text = (ROOT / package / "README.md").read_text()
    named = set(re.findall(r"`((?:models|search|storage|service|tests)/[\w/.]+)`", text))
    assert len(named) >= 15, f"{package}/README.md names {sorted(named)} alone"
    missing = sorted(name for name in named if not (ROOT / name).exists())
    assert not missing, f"{package}/README.md names {missing}, which are not there"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_map_names_what_its_files_define(package: str) -> None:
    text = (ROOT / package / "README.md").read_text()
    for name, file in re.findall(r"`([\w.]+)`\s+in\s+`([\w/]+\.py)`", text):
        defined = set(re.findall(r"(?:def|class) (\w+)", (ROOT / file).read_text()))
        assert {*name.split(".")} <= defined, f"{file} has no {name}"


def test_notes_that_the_code_refers_to_are_in_a_readme_and_no_others() -> None:
    texts = [(ROOT / package / "README.md").read_text() for package in PACKAGES]
    written = {title for text in texts for title in re.findall(r"\*\*Note \[([^]]+)\]", text)}
    referred = {
        title
        for package in HOUSED
        for path in sources(package)
        for title in re.findall(r"Note\s+(?:#\s+)?\[([^]]+)\]", path.read_text())
    }
    # Those of `models` stand where they are.
    here = {
        title
        for path in sources("models")
        for title in re.findall(r"Note \[([^]]+)\]", path.read_text())
    }
    assert referred - here == written


@pytest.mark.parametrize("package", PACKAGES)
def test_a_room_has_about_a_dozen_modules_and_says_what_it_is_for(package: str) -> None:
    rooms: dict[Path, int] = defaultdict(int)
    for path in sources(package):
        rooms[path.parent] += path.name != "__init__.py"
    for room, count in rooms.items():
        name = str(room.relative_to(ROOT))
        if name.startswith("storage/migrations"):
            continue
        assert count <= MOST_MODULES, f"{name} has {count} modules; allowed are {MOST_MODULES}"
        about = ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
        assert about, f"{name}/__init__.py does not say what the room is for"


@pytest.mark.parametrize("package", ["search", "storage"])
def test_a_room_imports_public_names_of_its_neighbours(package: str) -> None:
    """What another room may use is in a room's `__init__`; its files are its own."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources(package)
        for module, line in imports(path)
        if module.split(".")[0] == package
        and (room := room_of(module)) is not None
        and room not in OPEN_ROOMS
        and room != room_of(f"{dotted(path)}.it" if path.name == "__init__.py" else dotted(path))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", ["search", "storage"])
def test_files_of_a_package_have_names_of_their_own(package: str) -> None:
    """Documents have those of what they describe."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sources(package):
        if path.stem != "__init__" and not {"migrations", "documents"} & set(path.parts):
            found[path.stem].append(str(path.relative_to(ROOT).parent))
    assert not {name: folders for name, folders in found.items() if len(folders) > 1}


@pytest.mark.parametrize("package", PACKAGES)
def test_names_are_standard_words(package: str) -> None:
    found: set[str] = set()
    for path in sources(package):
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type != tokenize.NAME or token.string in STANDARD:
                continue
            if str(path.relative_to(ROOT)).startswith(KEPT.get(token.string, ())):
                continue
            words = re.findall(r"[A-Z]?[a-z]+", token.string)
            joined = "".join(words).lower()
            for private, plain in PRIVATE_WORDS.items():
                singular = {word.lower().removesuffix("s") for word in words}
                if private in singular or joined == private:
                    found.add(f"{path.relative_to(ROOT)}: {token.string} ({plain})")
    assert not found, "\n".join(sorted(found))


def _texts() -> dict[str, str]:
    paths = [
        ROOT / "README.md",
        *(ROOT / package / "README.md" for package in PACKAGES),
        *sorted(set((ROOT / "deploy").rglob("*.md")) - DOCSTRINGS),
        *sorted((ROOT / "service/rendering/templates").iterdir()),
    ]
    # What a template computes by, and what a page shows as code, is no word that anybody reads.
    hidden = r"{[{%#].*?[}%#]}|`[^`\n]*`"
    texts = {
        str(path.relative_to(ROOT)): re.sub(hidden, "", path.read_text(), flags=re.DOTALL)
        for path in paths
    }
    return texts | {"--help": all_help()}


def test_texts_are_in_standard_words() -> None:
    found = [
        f"{name}: {match[0]!r} in {line.strip()[:80]!r} ({plain})"
        for name, text in _texts().items()
        for line in text.splitlines()
        for private, plain in PRIVATE_TEXT.items()
        if (match := re.search(rf"\b(?:{private})\b", line, re.IGNORECASE))
        and not (private == "told" and name == ASK_AND_TELL)
    ]
    assert not found, "\n".join(found)
