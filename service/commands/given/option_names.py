"""Faults of a request, named by the options of the command line that said what is wrong."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from service.client import Refused
from service.http.problem_document import Problem, ProblemFault


@contextmanager
def by_option(
    options: Mapping[str, str], *, as_json: bool, advice: Mapping[str, str] | None = None
) -> Generator[None]:
    """Name the parts of a refused request by the options that said them, for people.

    Args:
        options: by part of the request, the option.
        as_json: whether a program asks, which knows the parts.
        advice: by what a message advises to send, the option that sends it.

    Raises:
        Refused: as the request was, in the words of the command line.
    """
    try:
        yield
    except Refused as error:
        if as_json:
            raise
        raise Refused(_translated(error.problem, options, advice or {})) from error


def _translated(problem: Problem, options: Mapping[str, str], advice: Mapping[str, str]) -> Problem:
    faults = tuple(
        ProblemFault(path=_option(options, one.path), message=_advised(one.message, advice))
        for one in problem.errors
    )
    detail = problem.title if faults else _advised(problem.detail, advice)
    return problem.model_copy(update={"detail": detail, "errors": faults})


def _advised(message: str, advice: Mapping[str, str]) -> str:
    for sent, option in advice.items():
        message = message.replace(sent, option)
    return message


def _option(options: Mapping[str, str], path: str) -> str:
    """The option of a part; with the name that it stands at, if any.

    Places in a list and kinds are nothing that a command line says apart.
    """
    for part, option in options.items():
        if path == part or path.startswith(f"{part}."):
            rest = path.removeprefix(part).removeprefix(".")
            is_said = rest and rest != "kind" and not rest.isdecimal()
            return f"{option} {rest}" if is_said else option
    return path
