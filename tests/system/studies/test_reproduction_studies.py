"""`reproduce` of a small row on a real server, once and once more."""

import json
from pathlib import Path

import pytest

from tests.real_data import real_data
from tests.service.running import Server, command

ROW = "ItalyPowerDemand/rnn-32"


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
