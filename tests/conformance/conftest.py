"""Every variant of both unions, one at a time."""

import pytest

from models.architectures import ARCHITECTURES, Architecture
from models.parametrizations import PARAMETRIZATIONS, Family
from models.spec import kind_of


@pytest.fixture(params=PARAMETRIZATIONS, ids=kind_of)
def parametrization(request: pytest.FixtureRequest) -> type[Family]:
    return request.param


@pytest.fixture(params=ARCHITECTURES, ids=kind_of)
def architecture(request: pytest.FixtureRequest) -> type[Architecture]:
    return request.param
