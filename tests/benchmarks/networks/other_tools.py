"""What other tools make of a network."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from models.graphs.sessions import Feed
from tests.benchmarks.networks.runtime_quantizers import FROM_RUNTIME, Maker
from tests.benchmarks.networks.toolkits import FROM_TOOLKITS

_MAKERS: Mapping[str, Maker] = {**FROM_RUNTIME, **FROM_TOOLKITS}


def files_of_others(model: onnx.ModelProto, feeds: Sequence[Feed]) -> dict[str, bytes | str]:
    """A file of each tool and setting, or why there is none. The model has its constants folded."""
    found: dict[str, bytes | str] = {}
    with tempfile.TemporaryDirectory() as name:
        for place, (title, make) in enumerate(_MAKERS.items()):
            folder = Path(name) / str(place)
            folder.mkdir()
            source, target = folder / "model.onnx", folder / "made.onnx"
            source.write_bytes(model.SerializeToString())
            found[title] = _made(make, source, target, feeds)
    return found


def _made(make: Maker, source: Path, target: Path, feeds: Sequence[Feed]) -> bytes | str:
    root = logging.getLogger()
    level = root.level
    # They warn of what they were asked to do.
    root.setLevel(logging.ERROR)
    try:
        make(source, target, feeds)
    except ModuleNotFoundError as error:
        return f"{error.name} is not installed"
    # What they raise has no common root; that they do is a figure.
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
    finally:
        root.setLevel(level)
    return target.read_bytes()
