"""What users uploaded: data sets and trained models."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import document
from storage.records import LOCAL, Json
from storage.tables.base import Table


class UploadRow(Table):
    """The columns that data sets and models both have."""

    __abstract__ = True

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(server_default=LOCAL)
    name: Mapped[str]
    size: Mapped[int] = mapped_column(BigInteger)
    fingerprint: Mapped[str]
    options: Mapped[dict[str, Json]] = mapped_column(document())
    created_at: Mapped[datetime]


class DatasetRow(UploadRow):
    """A user's upload: the files as they came, what they were read into, and what was found."""

    __tablename__ = "dataset"
    __table_args__ = (
        # One table is named thrice, which the convention for names of keys does not tell apart.
        ForeignKeyConstraint(["sha256"], ["artifact.sha256"], name="fk_dataset_sha256"),
        ForeignKeyConstraint(["test_sha256"], ["artifact.sha256"], name="fk_dataset_test_sha256"),
        ForeignKeyConstraint(
            ["container_sha256"], ["artifact.sha256"], name="fk_dataset_container_sha256"
        ),
        UniqueConstraint("tenant", "fingerprint"),
        Index(None, "tenant", "created_at", "id"),
    )

    suffix: Mapped[str]
    sha256: Mapped[str]
    test_sha256: Mapped[str | None]
    facts: Mapped[dict[str, Json]] = mapped_column(document())
    preview: Mapped[list[Json]] = mapped_column(document())
    container_sha256: Mapped[str]


class UploadedModelRow(UploadRow):
    """A trained network that a user uploaded: a checkpoint of our own form, or an ONNX file."""

    __tablename__ = "uploaded_model"
    __table_args__ = (
        UniqueConstraint("tenant", "fingerprint"),
        Index(None, "tenant", "created_at", "id"),
    )

    source: Mapped[str]
    sha256: Mapped[str] = mapped_column(ForeignKey("artifact.sha256"))
    file_sha256: Mapped[str]
    file_size: Mapped[int] = mapped_column(BigInteger)
    spec: Mapped[dict[str, Json]] = mapped_column(document())
    notes: Mapped[list[Json]] = mapped_column(document())
    parameters: Mapped[int] = mapped_column(BigInteger)
