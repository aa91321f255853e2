"""`python -m tests.chaos --minutes N --seed S [--postgresql]`: strike with everything there is."""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.postgres import MortalPostgres
from tests.chaos.run import run


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Run once and say what was done; a broken promise ends in its assertion."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="how long to strike at the least"
    )
    parser.add_argument("--seed", type=int, default=0, help="of strikes and studies")
    parser.add_argument("--trials", type=int, default=200, help="per study")
    parser.add_argument(
        "--postgresql", action="store_true", help="on PostgreSQL, which is struck as well"
    )
    parser.add_argument(
        "--api-gone",
        type=float,
        default=3.0,
        help="for how many lease times, of 8 s, the API is taken away; 15 are two minutes",
    )
    parser.add_argument(
        "--only", action="append", default=[], help="a strike, by its name; may be given again"
    )
    given = parser.parse_args()
    with ExitStack() as held:
        folder = Path(tempfile.mkdtemp(prefix="reflectory-chaos-"))
        _say(f"everything is in {folder}")
        postgres = None
        if given.postgresql:
            postgres = MortalPostgres(Path(tempfile.mkdtemp(prefix="reflectory-postgres-")))
            held.callback(postgres.stop)
        summary = run(
            folder,
            seconds=60 * given.minutes,
            seed=given.seed,
            trials=given.trials,
            postgres=postgres,
            gone_leases=given.api_gone,
            only=tuple(given.only),
            every=True,
            say=_say,
        )
    _say(f"{summary.studies} studies in {summary.seconds:.0f} s; {summary.artifacts} artifacts")
    _say(f"trials: {dict(summary.outcomes)}")
    _say(f"strikes: {dict(summary.strikes)}; studies rolled away: {summary.rolled_away}")
    _say(f"requests of the far agent that were struck: {dict(summary.requests_struck)}")


if __name__ == "__main__":
    main()
