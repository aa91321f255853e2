"""What trials leave behind while they run: epochs, measurements, exchanges with the sampler."""

from dataclasses import replace

import pytest

from storage.engine import Database
from storage.errors import Conflict, NotFound, UnstorableValue
from storage.repositories.exchanges import Exchanges
from storage.repositories.measurements import Measurements
from storage.repositories.metrics import Metrics
from tests.storage.records import add_study, add_trial, after, measurement, metric


@pytest.fixture
def study(database: Database) -> str:
    with database.write() as session:
        study_id = add_study(session).id
        for number in range(3):
            add_trial(session, study_id, number)
    return study_id


def test_an_epoch_that_is_sent_again_replaces_the_first(database: Database, study: str) -> None:
    again = metric(2, validation=0.7, spectral_margin=1e-9, attempt=2)
    with database.write() as session:
        for record in (metric(1), metric(3), metric(2), again):
            Metrics(session).put(study, 0, record)
        Metrics(session).put(study, 1, metric(1))
        assert Metrics(session).curve(study, 0) == [metric(1), again, metric(3)]
        assert Metrics(session).curve(study, 2) == []
        assert Metrics(session).epochs_trained(study) == 4
        assert Metrics(session).epochs_trained("none") == 0


def test_gradients_of_an_epoch_are_kept_where_there_are_any(database: Database, study: str) -> None:
    curve = [
        metric(1, gradient_first=1e-300, gradient_last=0.0),
        metric(2, gradient_first=None, gradient_last=2.5, recovered_batches=7),
    ]
    with database.write() as session:
        for record in curve:
            Metrics(session).put(study, 0, record)
    with database.read() as session:
        assert Metrics(session).curve(study, 0) == curve


def test_an_epoch_of_no_trial_is_refused(database: Database, study: str) -> None:
    with pytest.raises(NotFound, match="no trial 9"), database.write() as session:
        Metrics(session).put(study, 9, metric(1))


@pytest.mark.parametrize("field", ["train_loss", "gradient_first", "gradient_last"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_refused_and_leaves_no_row(
    database: Database, study: str, field: str, value: float
) -> None:
    def put() -> None:
        with database.write() as session:
            Metrics(session).put(study, 0, metric(1))
            Metrics(session).put(study, 0, metric(2, **{field: value}))

    with pytest.raises(UnstorableValue, match="not a finite number"):
        put()
    with database.read() as session:
        assert Metrics(session).curve(study, 0) == []


def test_the_first_measurement_of_a_shape_on_a_device_is_the_one_found(
    database: Database, study: str
) -> None:
    with database.write() as session:
        measurements = Measurements(session)
        first = measurement(study, created_at=after(1))
        again = measurement(study, trial=1, created_at=after(2), samples_per_second=9.0)
        elsewhere = measurement(study, device="NVIDIA H200")
        other_shape = measurement(study, shape_key="gru-8")
        for record in (again, first, elsewhere, other_shape):
            measurements.add(study, record)
        assert measurements.find(study, first.shape_key, "cpu") == first
        assert measurements.find(study, first.shape_key, "NVIDIA H200") == elsewhere
        assert measurements.find(study, "gru-9", "cpu") is None
        assert measurements.find("none", first.shape_key, "cpu") is None
        assert measurements.get(again.id) == again
        assert measurements.measuring_seconds(study) == pytest.approx(4 * 1.5)
        assert measurements.measuring_seconds("none") == 0.0
        with pytest.raises(NotFound, match="'none'"):
            measurements.get("none")
        with pytest.raises(Conflict, match=first.id):
            measurements.add(study, first)
        with pytest.raises(ValueError, match="'none'"):
            measurements.add("none", first)


def test_a_measurement_of_no_trial_is_refused(database: Database, study: str) -> None:
    with pytest.raises(NotFound, match="no trial 9"), database.write() as session:
        Measurements(session).add(study, measurement(study, trial=9))


def test_exchanges_keep_the_order_of_each_study(database: Database, study: str) -> None:
    with database.write() as session:
        other = add_study(session).id
        exchanges = Exchanges(session)
        words = [("ask", 0), ("ask", 1), ("tell", 1), ("ask", 2), ("tell", 0)]
        made = [exchanges.append(study, kind, trial) for kind, trial in words]
        elsewhere = exchanges.append(other, "ask", 0)
        with pytest.raises(NotFound, match="'none'"):
            exchanges.append("none", "ask", 0)
        with pytest.raises(ValueError, match=r"'say'.*ask, tell"):
            exchanges.append(study, "say", 0)
    with database.read() as session:
        assert Exchanges(session).list(study) == made
        assert Exchanges(session).list(other) == [elsewhere] == [replace(made[0], position=1)]
    assert [(word.kind, word.trial) for word in made] == words
    assert [word.position for word in made] == [1, 2, 3, 4, 5]
