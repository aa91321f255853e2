"""The user's folder with real data sets, for the tests that compare with what is in it.

It is named by REFLECTORY_DATA, which is a setting of the server as well. All other tests are to
find the same whether there is one or not, so `hide` takes it out of the environment.
"""

import os
from pathlib import Path

import pytest

_GIVEN, _HIDDEN = "REFLECTORY_DATA", "TESTS_REAL_DATA"


def hide() -> None:
    """Take the folder out of the settings; test processes that are started later find it too."""
    if folder := os.environ.pop(_GIVEN, None):
        os.environ[_HIDDEN] = folder


def real_data() -> Path:
    """The folder; a test is skipped where there is none."""
    folder = os.environ.get(_HIDDEN)
    if folder is None:
        pytest.skip(f"{_GIVEN} names no folder with real data")
    return Path(folder)
