"""`reproduce` of a small row on a real server, once and once more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_data import real_data
from tests.service.running import Server, command, wait_until

ROW = "ItalyPowerDemand/rnn-32"
_CHANCE = {"seconds", "study", "commit"}
"""What two runs need not have alike: how long a cell took, its study's id, what was checked out."""


@pytest.mark.slow
def test_a_row_is_trained_once_and_found_again(tmp_path: Path) -> None:
    environment = {"REFLECTORY_DATA": str(real_data())}
    server = Server(tmp_path / "data", workers=1, environment=environment)
    try:
        url = str(server.start().http.base_url)
        words = ("reproduce", "ucr", "--rows", ROW, "--seeds", 1)
        kept = tmp_path / "ucr.jsonl"
        first = command(url, *words, "--results", kept, "--json")
        assert first.returncode == 0, first.stderr
        (row,) = json.loads(first.stdout)
        assert (row["row"], row["seeds"], row["verdict"]) == (ROW, "1", "not yet")
        assert float(row["measured"]) > 0.8
        cell = json.loads(kept.read_text())
        assert (cell["updates"], cell["epochs"], cell["parameters"]) == (3000, 60, 1315)
        # Without what was kept, the study itself is found.
        again = command(url, *words, "--json")
        assert json.loads(again.stdout)[0]["measured"] == row["measured"]
        assert len(server.get("/v1/studies")["items"]) == 1
    finally:
        server.close()


@pytest.mark.slow
def test_what_is_killed_half_way_ends_with_the_same_values(tmp_path: Path) -> None:
    whole = _reproduced(tmp_path / "whole", killed=False)
    assert len(whole) == 4
    assert _reproduced(tmp_path / "killed", killed=True) == whole


def _reproduced(folder: Path, *, killed: bool) -> list[dict[str, object]]:
    """The cells of two rows and two seeds, in a folder of their own."""
    kept = folder.with_suffix(".jsonl")
    rows = ",".join((ROW, "ItalyPowerDemand/ornn-32-16"))
    words = ("reproduce", "ucr", "--rows", rows, "--seeds", "2", "--results", str(kept))
    server = Server(folder, workers=1, environment={"REFLECTORY_DATA": str(real_data())})
    try:
        url = str(server.start().http.base_url)
        if killed:
            asking = subprocess.Popen(
                [sys.executable, "-m", "service.cli", *words],
                env={**os.environ, "REFLECTORY_SERVER": url},
                stdout=subprocess.DEVNULL,
            )
            wait_until(lambda: kept.exists() and kept.read_text(), what="a first cell")
            wait_until(lambda: _epochs(server) > 60, what="a second training")
            asking.kill()
            asking.wait()
            server.kill_everything()
            url = str(server.start().http.base_url)
        ended = command(url, *words)
        assert ended.returncode == 0, ended.stderr
    finally:
        server.close()
    cells = [json.loads(line) for line in kept.read_text().splitlines()]
    return sorted(
        ({name: cell[name] for name in cell.keys() - _CHANCE} for cell in cells),
        key=lambda cell: (str(cell["row"]), str(cell["seed"])),
    )


def _epochs(server: Server) -> int:
    studies = server.get("/v1/studies")["items"]
    return sum(study["progress"]["epochs_trained"] for study in studies)
