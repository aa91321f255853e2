"""The folder of a trial: its stored files, and the texts that go with them.

What it holds follows from rows and stored bytes alone: equal ones give equal folders.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from models.spec import kind_of
from search.exports.export import Export
from search.exports.folder.c_example import c_example
from search.exports.folder.card import Card
from search.exports.folder.document import EXAMPLE, Example
from search.exports.folder.facts import FolderFacts
from storage.errors import ArtifactNotFound, StoredBytesDamaged

CARD: Final = "MODEL_CARD.md"
VERIFIED: Final = "VERIFIED.json"
EXAMPLE_PY: Final = "example.py"
EXAMPLE_C: Final = "example.c"


@dataclass(frozen=True, kw_only=True)
class FolderFile:
    """A file of a folder."""

    name: str
    sha256: str
    size: int
    content: bytes | None = None
    """None: it is stored under its digest."""


@dataclass(frozen=True)
class Lost:
    """Why a file's bytes are damaged or gone."""

    reason: str


@dataclass
class Folder:
    """All files, in their order, and what is not among them."""

    files: dict[str, FolderFile] = field(default_factory=dict[str, FolderFile])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    """File -> why it is not there."""
    lost: set[str] = field(default_factory=set[str])
    """Those of the missing ones whose bytes are damaged or gone."""

    def add(self, name: str, content: bytes) -> None:
        """A file that is not stored as it is."""
        digest = hashlib.sha256(content).hexdigest()
        self.files[name] = FolderFile(name=name, sha256=digest, size=len(content), content=content)

    def lose(self, name: str, lost: Lost) -> None:
        """A file that cannot be had any more."""
        self.missing[name] = lost.reason
        self.lost.add(name)

    def add_document(self, name: str, document: Any) -> None:
        """A file of JSON."""
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
        self.add(name, f"{text}\n".encode())

    @property
    def digest(self) -> str:
        """Of all names and all bytes."""
        listed = [(file.name, file.sha256) for file in self.files.values()]
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def folder_of(
    facts: FolderFacts,
    exports: tuple[type[Export], ...],
    read: Callable[[str], bytes],
    *,
    reports: Mapping[str, bytes | Lost],
) -> Folder:
    """Gather a trial's folder.

    Args:
        facts: what the rows say.
        exports: the kinds of files that there are, see `search.exports.registry`.
        read: stored bytes by their digest; called for small files alone.
        reports: further files, by name, or why they are not there.
    """
    folder = Folder()
    found: Example | None = None
    for export in exports:
        role = kind_of(export)
        artifact = facts.artifacts.get(role)
        if artifact is None:
            folder.missing |= dict.fromkeys(export.names(), facts.missing.get(role, _UNKNOWN))
            continue
        if export.parts is None:
            name = export.file_name
            folder.files[name] = FolderFile(name=name, sha256=artifact.sha256, size=artifact.size)
            continue
        try:
            parts = export.unpacked(read(artifact.sha256))
        except (ArtifactNotFound, StoredBytesDamaged) as error:
            for name in export.names():
                folder.lose(name, Lost(str(error)))
            continue
        for name, content in parts.items():
            folder.add(name, content)
        if EXAMPLE in parts:
            found = Example.model_validate_json(parts[EXAMPLE])
            del folder.files[EXAMPLE]
            _add_texts_of(folder, found)
    _add_examples(folder, found)
    for name, content in reports.items():
        if isinstance(content, Lost):
            folder.lose(name, content)
        else:
            folder.add(name, content)
    card = Card(
        facts=facts,
        example=found,
        sizes={file.name: file.size for file in folder.files.values()},
        missing=folder.missing,
        outcomes={
            export.names()[-1]: facts.outcomes[kind_of(export)]
            for export in exports
            if kind_of(export) in facts.outcomes
        },
    )
    folder.add(CARD, card.text().encode())
    _add_verified(folder, facts, exports)
    return folder


_UNKNOWN = "it was not made"
_ROOM: Final = "search.exports.folder"


def _add_texts_of(folder: Folder, example: Example) -> None:
    interface = example.interface
    answer = interface.answer
    folder.add_document(
        "samples.json",
        {
            "answer": "last step" if example.every_step else "sample",
            "samples": [one.model_dump(mode="json") for one in example.samples],
        },
    )
    folder.add_document(
        "preprocessing.json",
        {
            **interface.model_dump(mode="json", exclude={"answer"}),
            "tokens": example.reads_tokens,
            "answer": answer.model_dump(mode="json", exclude={"classes", "labels"}),
        },
    )
    if answer.decides:
        folder.add_document("labels.json", {"answer": answer.kind, "names": list(answer.names)})
    if example.vocabulary is not None:
        folder.add_document("vocabulary.json", example.vocabulary.model_dump(mode="json"))
    if example.initial_state is not None and "model.stream.onnx" in folder.files:
        folder.add_document("initial_state.json", example.initial_state)


def _add_examples(folder: Folder, example: Example | None) -> None:
    """The programs, where there is what they run and what they compare with."""
    for name, needed in ((EXAMPLE_PY, "model.onnx"), (EXAMPLE_C, "model.c")):
        lacking = next((one for one in (needed, "samples.json") if one not in folder.files), None)
        if lacking is not None:
            folder.missing[name] = f"it needs `{lacking}`, which is not there"
        elif name == EXAMPLE_PY:
            folder.add(name, files(_ROOM).joinpath(name).read_bytes())
        elif example is not None:
            folder.add(name, c_example(example).encode())


def _add_verified(folder: Folder, facts: FolderFacts, exports: tuple[type[Export], ...]) -> None:
    files = {
        file.name: {"sha256": file.sha256, "bytes": file.size} for file in folder.files.values()
    }
    made = {
        kind_of(export): facts.outcomes[kind_of(export)].document()
        for export in exports
        if kind_of(export) in facts.outcomes
    }
    folder.add_document(VERIFIED, {"files": files, "made": made, "missing": folder.missing})
