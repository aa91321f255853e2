"""Errors of the client.

ClientError
├── Refused      the server or the client itself said no: read the problem and change the request
├── Unreachable  no server of ours answers there: start it, or correct the address
├── Unfinished   the server is still making what was asked for: ask again later
├── Damaged      bytes arrived that are not what the server names: download them again
├── NoSuchStudy  no study goes by this reference, or several do: name one of those in the message
├── StudyFailed  the study that was waited for failed or was cancelled: read why in `study`
├── ExtraMissing a package is not installed: install the extra that the message names
└── ExportFailed a tracker did not take what was written: read its reason, and export again
"""

from service.api.studies.schemas import StudyDocument
from service.http.problem_document import Problem


class ClientError(Exception):
    """Root of every error that the client raises on purpose."""


class Refused(ClientError):
    """The request was refused, by the server or unsent; `problem` says what is allowed."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__("; ".join(problem.sentences()))


class Unreachable(ClientError):
    """No Reflectory server answers at this address."""


class Unfinished(ClientError):
    """What was asked for is still being made; it will be there later."""


class Damaged(ClientError):
    """A file's bytes do not have the digest that the server named; nothing was kept."""


class NoSuchStudy(ClientError):
    """No study goes by this reference, or several do; the message names candidates."""


class StudyFailed(ClientError):
    """A study that was waited for failed or was cancelled; `study` is how it ended."""

    def __init__(self, study: StudyDocument) -> None:
        self.study = study
        reason = f": {study.state_reason}" if study.state_reason else ""
        super().__init__(f"study {study.id} is {study.state}{reason}")


class ExportFailed(ClientError):
    """A tracker of experiments did not take what was to be written; a later export goes on."""


class ExtraMissing(ClientError):
    """A package is not installed that this needs."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(
            f"{what} needs {package}, which is not installed: pip install 'reflectory[{extra}]'"
        )
