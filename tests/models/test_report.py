import csv
import io

from models.architectures import AnyArchitecture, Gru, Lstm, Rnn, Urnn
from models.model import ModelSpec
from models.parametrizations import Dense, HouseholderSvd, LowRank, LowRankDiagonal, UnitaryFull
from models.report import ParameterReport, parameter_report
from models.spec import Signature

SIGNATURE = Signature(input_size=8, sequence_length=8, output_size=10)


def report_of(architecture: AnyArchitecture, parametrization: object) -> ParameterReport:
    document = {
        "architecture": architecture,
        "parametrization": parametrization,
        "signature": SIGNATURE,
    }
    return parameter_report(ModelSpec.model_validate(document))


def test_counts_of_a_low_rank_gru_are_those_done_by_hand() -> None:
    report = report_of(Gru(hidden_size=16), LowRankDiagonal(d=2))
    rows = {row.name: row for row in report.rows}
    recurrent = rows["recurrent"]
    assert recurrent.shape == (3, 16, 16)
    assert recurrent.parameters == 3 * (2 * 16 * 2 + 16)
    assert recurrent.degrees_of_freedom == 3 * (2 * 16 * 2 - 4 + 16)
    assert recurrent.multiply_adds == 3 * (2 * 16 * 2 + 16)
    assert recurrent.size_bytes == 4 * recurrent.parameters
    assert rows["recurrent.left"].shape == (3, 16, 2)
    assert rows["recurrent.left"].degrees_of_freedom is None
    assert rows["inputs.0"].multiply_adds == 3 * 16 * 8
    assert rows["readout.bias"].degrees_of_freedom == 10
    assert rows["initial_state"].parameters == 16
    totals = report.totals
    assert totals.parameters == 240 + 3 * 16 * 9 + 17 * 10 + 16
    assert totals.multiply_adds == 240 + 3 * 16 * 8 + 160
    assert totals.degrees_of_freedom == totals.parameters - 12
    assert report.dense_twin.parameters == 3 * 256 + 3 * 16 * 9 + 17 * 10 + 16
    assert report.ratios.parameters == totals.parameters / report.dense_twin.parameters
    assert totals.paper_parameters == totals.parameters - 2 * 16 * 8 - 16


def test_every_module_is_the_sum_of_its_tensors() -> None:
    report = report_of(Rnn(hidden_size=12), HouseholderSvd(m1=12, m2=4))
    tensors = [row for row in report.rows if row.level == "tensor"]
    for module in (row for row in report.rows if row.level == "module"):
        prefix = f"{module.name}." if module.name else ""
        below = [row for row in tensors if row.name.startswith(prefix)]
        assert module.parameters == sum(row.parameters for row in below)
        assert module.size_bytes == sum(row.size_bytes for row in below)


def test_stacked_lstm_with_peepholes_is_counted_layer_by_layer() -> None:
    report = report_of(Lstm(hidden_size=16, layers=2, peephole=True), Dense())
    rows = {row.name: row for row in report.rows}
    assert rows["recurrent"].shape == (8, 16, 16)
    assert rows["inputs"].parameters == 4 * 16 * (8 + 16) + 2 * 64
    assert rows["inputs.1"].multiply_adds == 4 * 16 * 16
    assert rows["cells.1.peephole"].multiply_adds == 256
    assert rows["initial_state"].shape == (2, 2, 16)
    assert report.totals.parameters == 8 * 256 + 4 * 16 * 24 + 128 + 2 * 256 + 64 + 170
    assert report.totals.multiply_adds == 8 * 256 + 4 * 16 * 24 + 2 * 256 + 160


def test_normalised_inputs_have_the_freedom_of_the_plain_ones() -> None:
    """A row's direction and gain are one number more than the row."""
    plain, normal = (
        report_of(Rnn(hidden_size=16, input_weight_norm=choice), Dense()).totals
        for choice in (False, True)
    )
    assert normal.parameters == plain.parameters + 16
    assert normal.degrees_of_freedom == plain.degrees_of_freedom
    assert normal.multiply_adds == plain.multiply_adds


def test_complex_matrices_are_counted_by_their_real_numbers() -> None:
    rows = {row.name: row for row in report_of(Urnn(hidden_size=6), UnitaryFull()).rows}
    recurrent = rows["recurrent"]
    assert recurrent.shape == (1, 12, 12)
    assert (recurrent.parameters, recurrent.degrees_of_freedom) == (36, 36)
    twin = report_of(Urnn(hidden_size=6), UnitaryFull()).dense_twin
    assert twin.parameters == 2 * 36 + 12 * 8 + 6 + 12 + 13 * 10


def test_signs_take_bytes_and_are_no_parameters() -> None:
    report = report_of(Rnn(hidden_size=12), HouseholderSvd(m1=12, m2=4))
    (sign,) = [row for row in report.rows if row.name == "recurrent.u.sign"]
    assert (sign.parameters, sign.size_bytes) == (0, 4)
    assert report.totals.paper_parameters == report.totals.parameters + 1


def test_a_dense_model_is_its_own_twin() -> None:
    report = report_of(Rnn(hidden_size=12), Dense())
    assert report.totals == report.dense_twin
    assert set(report.ratios.model_dump().values()) == {1.0}


def test_csv_and_json_carry_the_same_rows() -> None:
    report = report_of(Gru(hidden_size=12), HouseholderSvd(m1=3, m2=4))
    assert ParameterReport.model_validate_json(report.model_dump_json()) == report
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert [row["name"] for row in rows[:-3]] == [row.name for row in report.rows]
    assert [row["parameters"] for row in rows[:-3]] == [str(r.parameters) for r in report.rows]
    assert [row["level"] for row in rows[-3:]] == ["totals", "dense_twin", "ratios"]
    assert int(rows[-3]["parameters"]) == report.totals.parameters
    assert float(rows[-1]["parameters"]) == report.ratios.parameters


def test_bytes_in_a_file_follow_the_bits_and_bytes_in_memory_do_not() -> None:
    plain = report_of(Gru(hidden_size=16), LowRank(d=4))
    assert plain.totals.stored_bytes == plain.totals.size_bytes
    for bits, width in ((8, 1.0), (4, 0.5)):
        spec = plain.spec.model_copy(update={"bits": bits})
        few = parameter_report(spec)
        left = next(row for row in few.rows if row.name == "recurrent.left")
        assert left.stored_bytes == 3 * 16 * 4 * width + 2 * 3 * 4
        bias = next(row for row in few.rows if row.name == "inputs.0.bias")
        assert bias.stored_bytes == bias.size_bytes
        assert few.totals.size_bytes == plain.totals.size_bytes
        assert few.totals.parameters == plain.totals.parameters
        # Of dense numbers of 32 bits.
        assert few.dense_twin == plain.dense_twin
        assert few.ratios.stored_bytes == few.totals.stored_bytes / plain.dense_twin.size_bytes


def test_a_report_from_before_there_were_bits_is_read() -> None:
    report = report_of(Gru(hidden_size=16), LowRank(d=4))
    document = report.model_dump(mode="json")
    for part in (*document["rows"], *(document[n] for n in ("totals", "dense_twin", "ratios"))):
        del part["stored_bytes"]
    assert ParameterReport.model_validate(document) == report
