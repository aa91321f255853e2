"""Stored bytes, and what they are to a trial."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Index, Integer
from sqlalchemy.orm import Mapped, mapped_column

from storage.tables.base import Table


class ArtifactRow(Table):
    """Bytes that are in the artifact store."""

    __tablename__ = "artifact"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]


class TrialArtifactRow(Table):
    """What part an artifact plays for a trial."""

    __tablename__ = "trial_artifact"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study_id", "number"], ["trial.study_id", "trial.number"], ondelete="CASCADE"
        ),
        # Before an artifact goes, its names are looked for.
        Index(None, "sha256"),
    )

    study_id: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    role: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(ForeignKey("artifact.sha256"))
