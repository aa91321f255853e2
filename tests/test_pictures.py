"""Pictures of the documentation are of what they say."""

import re
from pathlib import Path

import pytest

from service.figures.style import Theme
from tests.pictures import fronts

PICTURES = Path(__file__).parents[1] / "deploy/docs/pictures"


@pytest.mark.parametrize("theme", fronts.THEMES)
def test_a_picture_of_a_front_is_of_the_figure_that_would_be_drawn_now(theme: Theme) -> None:
    text = (PICTURES / f"front-{theme}.svg").read_text()
    (kept,) = re.findall(r"^<!-- figure (\w+) -->$", text, re.MULTILINE)
    assert kept == fronts.digest(theme), "python -m tests.pictures"


@pytest.mark.parametrize("theme", fronts.THEMES)
def test_a_picture_of_a_front_shows_every_network(theme: Theme) -> None:
    found = fronts.figure(theme)
    drawn = sum(len(trace.get("customdata") or ()) for trace in found["data"])
    assert drawn >= len(fronts.results.load().runs)
    assert "range" not in found["layout"]["xaxis"]
