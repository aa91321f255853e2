"""The folder of a trial: files, a card and examples that run elsewhere without this project."""

from search.exports.folder.answers import example_of
from search.exports.folder.document import EXAMPLE, Example
from search.exports.folder.facts import FolderFacts
from search.exports.folder.folder import (
    CARD,
    Folder,
    FolderFile,
    Lost,
    folder_of,
)

__all__ = [
    "CARD",
    "EXAMPLE",
    "Example",
    "Folder",
    "FolderFacts",
    "FolderFile",
    "Lost",
    "example_of",
    "folder_of",
]
