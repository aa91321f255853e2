"""Results of a collection as text: CSV for programs, Markdown for people."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence

from search.documents.readable import NONE, metric, number
from service.api.collections.schemas import RanksDocument, ResultsDocument, SetDocument

MARKDOWN = "text/markdown; charset=utf-8"

_COLUMNS = (
    *("row", "study", "state", "metric", "direction"),
    *("trial", "outcome", "architecture", "parametrization"),
    *("quality", "test_quality", "parameters", "front_points"),
)


def results_csv(results: ResultsDocument) -> str:
    """A line for each data set, with its best trial."""
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(_COLUMNS)
    for one in results.sets:
        cells = {
            **dict(one),
            **({} if one.best is None else dict(one.best)),
            "front_points": len(one.front),
        }
        lines.writerow([cells.get(name) for name in _COLUMNS])
    return text.getvalue()


def results_markdown(results: ResultsDocument, ranks: RanksDocument) -> str:
    """The best trial of each data set, and the ranks of the kinds of models."""
    return "\n".join([*_results(results), *_ranks(ranks), ""])


def _results(results: ResultsDocument) -> Iterator[str]:
    yield f"# {_escaped(results.name)}"
    yield ""
    yield f"Collection `{results.id}` is {results.state}. Validation data chose each trial."
    yield ""
    heads = ("data set", "state", "best model", "trial", "metric", "validation", "test")
    yield from _table((*heads, "parameters", "front"), map(_of_set, results.sets), numbers=6)


def _of_set(one: SetDocument) -> Sequence[str]:
    best = one.best
    found = (
        [NONE] * 6
        if best is None
        else [
            best.kind if best.outcome == "complete" else f"{best.kind} ({best.outcome})",
            str(best.trial),
            one.metric,
            metric(one.metric, best.quality),
            metric(one.metric, best.test_quality),
            number(best.parameters),
        ]
    )
    return (one.row, one.state, *found, str(len(one.front)))


def _ranks(ranks: RanksDocument) -> Iterator[str]:
    yield ""
    yield "## Ranks"
    yield ""
    if ranks.friedman_p is None:
        yield "Ranks need two data sets that have two kinds of models in common."
    else:
        yield (
            f"Over {len(ranks.sets)} data sets: Friedman p = {ranks.friedman_p:.3g}"
            + _critical(ranks.critical_difference)
        )
        yield ""
        heads = ("model", "mean rank", "parameters", "front")
        rows = (
            (
                one.kind,
                f"{one.mean_rank:.2f}",
                number(round(one.parameters)),
                "yes" if one.on_front else "",
            )
            for one in ranks.ranked
        )
        yield from _table(heads, rows, numbers=2)
        yield ""
        heads = ("pair", "wins", "ties", "losses", f"p ({ranks.test_in_words}, Holm)")
        pairs = (
            (
                f"{one.first} / {one.second}",
                *map(str, (one.wins, one.ties, one.losses)),
                f"{one.p:.3g}",
            )
            for one in ranks.pairs
        )
        yield from _table(heads, pairs, numbers=4)
    for one in ranks.left_out:
        yield ""
        yield f"Left out: {_escaped(one.row)}, which lacks {_escaped(', '.join(one.lacks))}."


def _critical(difference: float | None) -> str:
    return "." if difference is None else f", Nemenyi critical difference {difference:.2f}."


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int) -> Iterator[str]:
    """A table of Markdown, of whose columns the last `numbers` are aligned to the right."""
    words = len(heads) - numbers
    yield _line(heads)
    yield _line([*(["---"] * words), *(["---:"] * numbers)])
    yield from map(_line, rows)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Text that is none of Markdown's marks, nor HTML: names are their users'."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", text)
