"""The base of the tables, and how each kind of value is stored."""

from datetime import datetime

from sqlalchemy import MetaData
from sqlalchemy.orm import DeclarativeBase

from storage.columns import CleanText, FiniteFloat, Instant, word
from storage.endings import AttemptCause, StudyCause, TrialCause
from storage.records import (
    AttemptKind,
    AttemptState,
    BookingState,
    CommandKind,
    StudyState,
    TrialOrigin,
    TrialState,
)


class Table(DeclarativeBase):
    """Base of the mapped classes; constraints are named, so that later migrations can name them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own declaration, read once
        str: CleanText(),
        float: FiniteFloat(),
        datetime: Instant(),
        StudyState: word(StudyState),
        StudyCause: word(StudyCause),
        TrialCause: word(TrialCause),
        AttemptCause: word(AttemptCause),
        TrialState: word(TrialState),
        TrialOrigin: word(TrialOrigin),
        AttemptKind: word(AttemptKind),
        AttemptState: word(AttemptState),
        BookingState: word(BookingState),
        CommandKind: word(CommandKind),
    }
