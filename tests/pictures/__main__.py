"""`python -m tests.pictures`: draws the pictures of `deploy/docs/pictures/`."""

from pathlib import Path

from tests.pictures import parametrizations

FOLDER = Path(__file__).parents[2] / "deploy/docs/pictures"


def main() -> None:
    """Draw all."""
    for member in parametrizations.MEMBERS:
        (FOLDER / f"{member.kind}.svg").write_text(parametrizations.drawn(member))


if __name__ == "__main__":
    main()
