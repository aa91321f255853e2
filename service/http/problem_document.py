"""The JSON of every error answer: RFC 9457 problem documents."""

from pydantic import BaseModel, ConfigDict, Field


class ProblemFault(BaseModel):
    """One thing wrong with a request: where, what was wrong, the value and what is allowed."""

    model_config = ConfigDict(frozen=True)

    path: str = Field(
        description="dotted, as in the document; or the name of a parameter or header"
    )
    message: str


class ReachedQuota(BaseModel):
    """Which quota a refused request would have gone over."""

    model_config = ConfigDict(frozen=True)

    quota: str
    used: int
    limit: int


class Problem(BaseModel):
    """What went wrong, in a sentence; `errors` names each part of the request that is at fault."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(default="about:blank", description="names the kind of problem; stable")
    title: str
    status: int
    detail: str
    errors: tuple[ProblemFault, ...] = ()
    quota: str | None = Field(
        default=None,
        description="the quota that the request would have gone over, as `GET /v1/quota` names it; "
        "it and the two beside it are there with the type `urn:reflectory:quota` alone",
    )
    used: int | None = Field(default=None, description="how much of that quota is used")
    limit: int | None = Field(default=None, description="how much of it there is")

    def sentences(self) -> list[str]:
        """What a person reads: the detail, then one line per fault that it does not say already."""
        detail = self.detail or self.title
        faults = [f"{error.path}: {error.message}".removeprefix(": ") for error in self.errors]
        return [detail, *(fault for fault in faults if fault not in detail)]
