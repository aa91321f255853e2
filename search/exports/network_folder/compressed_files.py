"""The files of a folder of a network of others, gathered; equal rows and bytes give equal ones."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from search.documents.export_kinds import ONNX
from search.exports.folder import CARD, Folder, FolderFile, Lost
from search.exports.folder.folder import EXAMPLE_PY
from search.exports.network_folder.compressed_card import CompressedCard
from search.exports.network_folder.compressed_facts import CompressedFacts
from search.graphs.network_report import NetworkReport

MODEL_ONNX: Final = "model.onnx"
DATA_JSON: Final = "data.json"
REPORT_JSON: Final = "report.json"
REPORT_HTML: Final = "report.html"
_ROOM: Final = "search.exports.network_folder"
_UNKNOWN: Final = "it was not made"


def network_folder(
    facts: CompressedFacts, report: NetworkReport | None, *, reports: Mapping[str, bytes | Lost]
) -> Folder:
    """Gather a trial's folder.

    Args:
        facts: what the rows say.
        report: what is stored about the file; None where that is gone, or not there yet.
        reports: the same as files, by name, or why they are not there.
    """
    folder = Folder()
    artifact = facts.artifacts.get(ONNX)
    if artifact is None:
        folder.missing[MODEL_ONNX] = facts.missing.get(ONNX, _UNKNOWN)
        folder.missing[EXAMPLE_PY] = f"it needs `{MODEL_ONNX}`, which is not there"
    else:
        folder.files[MODEL_ONNX] = FolderFile(
            name=MODEL_ONNX, sha256=artifact.sha256, size=artifact.size
        )
        folder.add_document(DATA_JSON, _data(facts))
        folder.add(EXAMPLE_PY, files(_ROOM).joinpath("run_network.py").read_bytes())
    for name, content in reports.items():
        if isinstance(content, Lost):
            folder.lose(name, content)
        else:
            folder.add(name, content)
    card = CompressedCard(facts=facts, report=report, missing=folder.missing)
    folder.add(CARD, card.text().encode())
    return folder


def _data(facts: CompressedFacts) -> Mapping[str, object]:
    """How samples are fed: what `example.py` needs to know of the data."""
    task = facts.task
    return {
        "arrays": {
            port.name: task.inputs.get(port.name, port.name)
            for port in task.known.inputs
            if port.name not in task.zeros
        },
        "zeros": list(task.zeros),
        "each": task.each,
    }
