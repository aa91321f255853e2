"""`python -m tests.pictures`: draws the pictures of `deploy/docs/pictures/`; it needs Chromium."""

from pathlib import Path

from tests.pictures import fronts, parametrizations

FOLDER = Path(__file__).parents[2] / "deploy/docs/pictures"


def main() -> None:
    """Draw all."""
    for theme in fronts.THEMES:
        (FOLDER / f"front-{theme}.svg").write_text(fronts.drawn(theme))
    for member in parametrizations.MEMBERS:
        (FOLDER / f"{member.kind}.svg").write_text(parametrizations.drawn(member))


if __name__ == "__main__":
    main()
