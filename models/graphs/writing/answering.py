"""What a process does that runs one file (`-m models.graphs.writing.answering FOLDER FEEDS`)."""

import json
import sys
from collections import Counter
from pathlib import Path

import onnx

from models.graphs.sessions import GraphSession
from models.graphs.writing.exchange import ANSWERS, FEEDS, MODEL, TYPES, load, save

_OPTIMIZED = "optimized.onnx"


def main(folder: Path, feeds: int) -> None:
    """Run the file of a folder on its feeds, and leave the answers and the nodes that ran there."""
    optimized = folder / _OPTIMIZED
    session = GraphSession((folder / MODEL).read_bytes(), optimized_path=optimized)
    graph = onnx.load_model_from_string(optimized.read_bytes()).graph
    save(folder / ANSWERS, [session.run(feed) for feed in load(folder / FEEDS, feeds)])
    (folder / TYPES).write_text(json.dumps(Counter(node.op_type for node in graph.node)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
