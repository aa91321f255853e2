"""Collections made of rows."""

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy.orm import Session

from search.collections import Comparison, SetResults, compare, counted_epochs, results_of
from search.fronts import BestOfKind
from search.fronts.figures import Figures
from search.studies import StudySpec
from service.api.collections.schemas import (
    BestDocument,
    CellDocument,
    CollectionDocument,
    CollectionEntry,
    CollectionLinks,
    CollectionTotals,
    FrontSummary,
    LeftOut,
    MemberDocument,
    MemberLinks,
    PairDocument,
    RankedKind,
    RanksDocument,
    ResultsDocument,
    SetDocument,
)
from service.api.fronts.documents import front_document
from service.api.rows import from_row
from service.api.studies.documents import study_documents
from service.api.studies.schemas import StudyDocument
from storage.records import CollectionRecord, CollectionStudyRecord, StudyRecord, StudyState
from storage.repositories.collections import Collections
from storage.repositories.studies import Studies

_IN_PROGRESS = (StudyState.RUNNING, StudyState.PAUSED)
_ENDS = (StudyState.FAILED, StudyState.CANCELLED)


def collection_entries(
    session: Session, collections: Sequence[CollectionRecord]
) -> tuple[CollectionEntry, ...]:
    """Collections for a list."""
    states = Collections(session).states([one.id for one in collections])
    return tuple(_entry(one, states[one.id]) for one in collections)


def collection_document(
    session: Session, collection: CollectionRecord, figures: Figures
) -> CollectionDocument:
    """A collection with all of its studies, as of this transaction."""
    members, studies = members_of(session, collection)
    known = [studies[member.study_id] for member in members]
    documents = study_documents(session, known, figures)
    states = Collections(session).states([collection.id])[collection.id]
    progress = [document.progress for document in documents]
    epochs = sum(one.epochs_trained for one in progress)
    counted = counted_epochs(StudySpec.model_validate(known[0].spec)) if known else None
    return CollectionDocument(
        **dict(_entry(collection, states)),
        source=collection.source,
        totals=CollectionTotals(
            trials=sum(one.trials.ended for one in progress),
            complete=sum(one.trials.complete for one in progress),
            epochs_trained=epochs,
            device_hours=sum(one.device_hours for one in progress),
            trainings=None if counted is None else epochs // counted,
        ),
        studies=tuple(map(_member, members, documents)),
    )


def members_of(
    session: Session, collection: CollectionRecord
) -> tuple[Sequence[CollectionStudyRecord], Mapping[str, StudyRecord]]:
    """The places of a collection's studies in their order, and the studies by id."""
    members = Collections(session).members([collection.id])[collection.id]
    studies = Studies(session).with_ids([member.study_id for member in members])
    return members, {study.id: study for study in studies}


def results_document(
    session: Session, collection: CollectionRecord, figures: Figures
) -> ResultsDocument:
    """What was found on each data set."""
    return ResultsDocument(
        id=collection.id,
        name=collection.name,
        state=_state_now(session, collection),
        sets=tuple(
            SetDocument(
                row=one.member.row,
                study=one.study.id,
                state=one.study.state,
                metric=one.metric,
                direction=one.direction,
                best=None if one.best is None else _best(one.best),
                front=_front(session, one.study, figures),
            )
            for one in _results(session, collection, figures)
        ),
    )


def ranks_document(
    session: Session, collection: CollectionRecord, figures: Figures, kinds: Sequence[str] = ()
) -> RanksDocument:
    """Kinds of models over the data sets.

    Raises:
        SpecRefused: a kind was asked for that no study trained.
    """
    found = compare(_results(session, collection, figures), kinds=kinds)
    ranks = found.ranks
    return RanksDocument(
        id=collection.id,
        name=collection.name,
        state=_state_now(session, collection),
        kinds=tuple(found.kinds),
        sets=tuple(one.member.row for one in found.sets),
        left_out=tuple(
            LeftOut(row=one.member.row, study=one.study.id, lacks=tuple(lacks))
            for one, lacks in found.left_out
        ),
        ranked=tuple(_ranked(found)),
        friedman_p=None if ranks is None else ranks.friedman_p,
        critical_difference=None if ranks is None else ranks.critical_difference,
        pairs=tuple(from_row(PairDocument, pair) for pair in (ranks.pairs if ranks else ())),
        pair_test="wilcoxon" if ranks is None else ranks.pair_test,
    )


def _entry(collection: CollectionRecord, states: Mapping[StudyState, int]) -> CollectionEntry:
    return from_row(
        CollectionEntry,
        collection,
        state=_state(states),
        states=dict(states),
        collection_budget=collection.budget,
        links=CollectionLinks.of(collection.id),
    )


def _state(states: Mapping[StudyState, int]) -> StudyState:
    """Where a collection stands whose studies are in these states."""
    if StudyState.QUEUED in states:
        begun = states.keys() - {StudyState.QUEUED}
        return StudyState.RUNNING if begun else StudyState.QUEUED
    return next(
        (state for state in (*_IN_PROGRESS, *_ENDS) if state in states), StudyState.FINISHED
    )


def _state_now(session: Session, collection: CollectionRecord) -> StudyState:
    return _state(Collections(session).states([collection.id])[collection.id])


def _member(member: CollectionStudyRecord, study: StudyDocument) -> MemberDocument:
    return from_row(
        MemberDocument,
        study,
        row=member.row,
        seed=member.seed,
        study=study.id,
        links=MemberLinks.of(study.id),
    )


def _results(
    session: Session, collection: CollectionRecord, figures: Figures
) -> Sequence[SetResults]:
    members, studies = members_of(session, collection)
    return results_of(session, members, studies, figures)


def _best(found: BestOfKind) -> BestDocument:
    return from_row(BestDocument, found, outcome=found.state)


def _front(session: Session, study: StudyRecord, figures: Figures) -> tuple[FrontSummary, ...]:
    front = front_document(study.id, figures.front(session, study))
    return tuple(from_row(FrontSummary, point) for point in front.ranked())


def _ranked(comparison: Comparison) -> Iterator[RankedKind]:
    for compared in comparison.compared:
        yield from_row(
            RankedKind,
            compared,
            cells=tuple(
                from_row(
                    CellDocument,
                    one.kinds[compared.kind],
                    outcome=one.kinds[compared.kind].state,
                    row=one.member.row,
                    study=one.study.id,
                    metric=one.metric,
                )
                for one in comparison.sets
            ),
        )
