"""What tests of stacks have in common."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_fell_back(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Members are computed in the calls that a test asks for; one that breaks them clears this."""
    yield
    said = [record for record in caplog.records if record.name == "search.training.stacks.training"]
    assert said == []
