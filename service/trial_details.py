"""All that is known of one trial, read from the tables."""

from sqlalchemy.orm import Session

from search.remeasuring import asked_again
from service.documents import TrialDetail, trial_detail
from storage.attempts import Attempts
from storage.measurements import Measurements
from storage.records import MeasurementRecord
from storage.trials import Trials


def trial_detail_of(session: Session, study_id: str, number: int) -> TrialDetail:
    """One trial with its attempts and the records of its shape.

    Raises:
        NotFound: there is no such study or trial.
    """
    trial = Trials(session).get(study_id, number)
    records: list[MeasurementRecord] = []
    if trial.measurement_id is not None:
        used = Measurements(session).get(trial.measurement_id)
        records = [*Measurements(session).of_study(study_id, used.shape_key)]
    return trial_detail(
        trial,
        Attempts(session).of_trial(study_id, number),
        measurements=records,
        again=asked_again(session, trial),
    )
