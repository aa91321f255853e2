"""What is reported of the files of other tools; importing this loads no runtime."""

from pydantic import Field

from models.spec import Spec


class ReferenceFile(Spec):
    """One file that another tool made, measured as trials are."""

    name: str
    bytes: int | None = Field(default=None, description="null: the tool made none")
    quality: float | None = Field(
        default=None, description="the study's metric on validation data; null: there is none"
    )
    agreement: float | None = Field(
        default=None, description="with the original's decisions; null: nothing is decided"
    )
    reason: str | None = Field(default=None, description="why there is no file, or no answer")
