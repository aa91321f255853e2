"""The example notebook runs from its first cell to its last, against a real server."""

import os
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.service.running import Server

ROOT = Path(__file__).parents[3]
NOTEBOOK = ROOT / "deploy" / "examples" / "compress_gru.ipynb"


def test_the_notebook_has_no_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) >= 5
    assert not any(cell.outputs or cell.execution_count for cell in code)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_notebook_runs(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    paths = server.get("/openapi.json")["paths"]
    if not any("/figures/" in path for path in paths):
        notebook.cells = [cell for cell in notebook.cells if ".plot_" not in cell.source]
    shutil.copy(ROOT / "service" / "reflectory_module.py", tmp_path / "reflectory.py")
    environment = {
        "PYTHONPATH": os.pathsep.join(
            filter(None, (str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH")))
        ),
        "REFLECTORY_SERVER": str(server.http.base_url),
        "EXAMPLE_FOLDER": str(tmp_path),
        "EXAMPLE_EPOCHS": "6",
        "EXAMPLE_TRIALS": "3",
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "OMP_NUM_THREADS": "1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = NotebookClient(notebook, timeout=600, kernel_name="python3").execute(cwd=str(tmp_path))
    shown = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("<table>" in output.get("data", {}).get("text/html", "") for output in shown)
    assert any(output.get("text", "").endswith("are right\n") for output in shown)
    assert (tmp_path / "small" / "MODEL_CARD.md").is_file()
