"""A few hundred requests that nobody would think of; `python -m tests.fuzz` asks many more."""

from pathlib import Path

from tests.fuzz.run import fuzz


def test_no_request_is_answered_as_the_document_does_not_say(tmp_path: Path) -> None:
    done = fuzz(tmp_path, examples=6, seed=1, phases=("fuzzing", "stateful"))
    assert not done.failed, done.report
    assert done.cases > 250
