"""The named systems: they can be built, have the printed sizes, and begin a study."""

import numpy as np
import optuna
import pytest
from optuna.samplers import TPESampler

from models.errors import SpecError
from models.model import ModelSpec
from models.spec import Signature
from search.errors import SpecRefused
from search.papers import PRESETS, Preset
from search.samplers import Tpe
from search.spaces.draws import CornerSource, TrialSource
from search.spaces.space import SearchSpace, describe
from search.studies.catalog import catalog
from search.studies.spec import StudySpec
from search.studies.submission import checked_space
from search.tasks import AnyTask, Digits, Language, Mnist, Multilabel, Ucr
from search.tasks.text.texts import TextFacts

PIXELS = Mnist(layout="pixels").signature()
ROWS = Mnist(layout="rows").signature()
MEMORY = Signature(input_size=10, sequence_length=520, output_size=10, output_steps="every")
CHARACTERS = Signature(input_size=51, sequence_length=100, output_size=51, output_steps="every")
TOKENS = CHARACTERS.model_copy(update={"input_size": 50, "output_size": 50})
ADIAC = Signature(input_size=11, sequence_length=16, output_size=38)
SIGNATURES = [
    *(Digits.model_validate({"layout": layout}).signature() for layout in ("rows", "pixels")),
    *(
        Mnist.model_validate({"layout": layout}).signature()
        for layout in ("rows", "pixels", "392x2", "112x7", "permuted")
    ),
    MEMORY,
    CHARACTERS,
]


def model(preset: Preset, signature: Signature) -> ModelSpec:
    return ModelSpec(
        architecture=preset.architecture,
        parametrization=preset.parametrization,
        signature=signature,
    )


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
def test_a_preset_builds_for_every_task_that_its_architecture_admits(preset: Preset) -> None:
    built = 0
    for signature in SIGNATURES:
        spec = model(preset, signature)
        try:
            preset.architecture.check(signature)
        except SpecError:
            continue
        empty = spec.build_on_meta()
        assert sum(p.numel() for p in empty.parameters()) == spec.parameter_count()
        built += 1
    assert built >= 7


def test_sources_and_differences_are_told() -> None:
    for name, preset in PRESETS.items():
        assert preset.name == name
        assert len(preset.description) > 80
        assert "20" in preset.paper
    assert len({preset.title for preset in PRESETS.values()}) == len(PRESETS)


def reflectors(n: int, m: int) -> int:
    return m * n - m * (m - 1) // 2


def perceptron(n: int, depth: int, matrix: int) -> int:
    """784 n + n + L (c_W + n) + 10 n + 10."""
    return 785 * n + depth * (matrix + n) + 10 * n + 10


# Trainable numbers, from the papers' tables where those come out with the stated sizes, else from
# the closed forms.
COUNTS = [
    ("rnn-128", PIXELS, 18_058),
    ("irnn-128", PIXELS, 18_058),
    ("irnn-128-orthogonal", PIXELS, 18_058),
    ("lstm-128", PIXELS, 68_106),
    ("lstm-128-peephole", PIXELS, 68_106 + 128**2),
    ("ornn-128-16", PIXELS, reflectors(128, 16) + (10 + 1 + 1 + 1) * 128 + 10),
    ("ornn-256-32", PIXELS, 11_034),
    ("spectral-rnn-128", PIXELS, 5_658),
    ("spectral-rnn-128-released", PIXELS, 5_658 - 128),
    ("svd-rnn-256", PIXELS, 11_546),
    ("urnn-512", PIXELS, 16_394),
    ("rc-urnn-512", PIXELS, 16_394),
    ("fc-urnn-116", PIXELS, 16_366),
    ("rnn-32", ADIAC, 2694),
    ("lstm-32", ADIAC, 6950),
    ("ornn-32-16", ADIAC, 2062),
    ("svd-rnn-32-16", ADIAC, 2486),
    ("mlp-128-30", ROWS, perceptron(128, 30, 128**2)),
    ("mlp-32-40", ROWS, perceptron(32, 40, 32**2)),
    ("resnet-128-30", ROWS, perceptron(128, 30, 128**2)),
    ("resnet-32-40", ROWS, perceptron(32, 40, 32**2)),
    ("svd-mlp-128-30", ROWS, perceptron(128, 30, 2 * reflectors(128, 16) + 128)),
    ("svd-mlp-32-40", ROWS, perceptron(32, 40, 2 * reflectors(32, 16) + 32)),
    ("svd-resnet-128-30", ROWS, perceptron(128, 30, 2 * reflectors(128, 16) + 128)),
    ("svd-resnet-32-40", ROWS, perceptron(32, 40, 2 * reflectors(32, 16) + 32)),
    ("lr-highway", ROWS, 6_078_474),
    ("lrd-highway", ROWS, 6_088_714),
    ("gru-128", PIXELS, 51_338),
    ("lr-gru-128-24", PIXELS, 20_618),
    ("lr-gru-512-4", PIXELS, 21_002),
    ("lrd-gru-64-24", PIXELS, 10_506),
    ("lrd-gru-128-24", PIXELS, 21_002),
    ("lrd-gru-256-24", PIXELS, 41_994),
    ("lrd-gru-128-50", MEMORY, 44_426),
    ("lrd-gru-wn-128-50", MEMORY, 44_426 + 6 * 128),
    ("lrd-lstm-1740-300", TOKENS, 4_624_970),
    ("dizzy-128-10", PIXELS, 10 * 64 + (1 + 1 + 10) * 128 + 10),
    ("dizzy-svd-128", PIXELS, 20 * 64 + 128 + (1 + 1 + 10) * 128 + 10),
]

PAPER_COUNTS = [
    ("factorized-rnn-128", PIXELS, 34_570),
    ("gru-128", PIXELS, 50_954),
    ("lr-gru-128-24", PIXELS, 20_234),
    ("lr-gru-512-4", PIXELS, 19_466),
    ("lrd-gru-64-24", PIXELS, 10_314),
    ("lrd-gru-128-24", PIXELS, 20_618),
    ("lrd-gru-256-24", PIXELS, 41_226),
    ("lrd-gru-128-50", MEMORY, 41_738),
    ("tied-lrd-gru-1000-64", CHARACTERS, 364_051),
]

# Miceli Barone, table 2, in millions and with all three input matrices counted.
LANGUAGE_MODELS = [
    ("gru-1000-reset-after", 3.21),
    ("gru-3298-dropout", 33.31),
    ("lrd-gru-1000-64", 0.59),
    ("lrd-gru-3298-128", 3.23),
    ("lrd-gru-5459-64", 3.24),
    ("tied-lrd-gru-5459-64", 2.54),
    ("tied-lrd-gru-1000-64", 0.47),
    ("tied-lrd-gru-4480-128", 3.23),
    ("tied-lrd-gru-6985-64", 3.26),
]


@pytest.mark.parametrize(("name", "signature", "count"), COUNTS, ids=[row[0] for row in COUNTS])
def test_parameter_counts(name: str, signature: Signature, count: int) -> None:
    assert model(PRESETS[name], signature).parameter_count() == count


@pytest.mark.parametrize(
    ("name", "signature", "count"), PAPER_COUNTS, ids=[row[0] for row in PAPER_COUNTS]
)
def test_counts_by_the_papers_conventions(name: str, signature: Signature, count: int) -> None:
    assert model(PRESETS[name], signature).paper_count() == count


@pytest.mark.parametrize(("name", "millions"), LANGUAGE_MODELS)
def test_language_models_of_characters(name: str, millions: float) -> None:
    assert round(model(PRESETS[name], CHARACTERS).parameter_count() / 1e6, 2) == millions


def test_spectral_rnn_of_words_has_the_printed_recurrent_matrices() -> None:
    """63 Ki, as the paper's table counts: two layers of R(512, 32) twice and 512, no more."""
    preset = PRESETS["spectral-rnn-512-32"]
    slot = preset.architecture.slots(CHARACTERS)["recurrent"]
    count = preset.parametrization.parameter_count(slot)
    assert count == 2 * (2 * reflectors(512, 32) + 512)
    assert count // 1024 == 63


def with_facts(task: AnyTask) -> AnyTask:
    """The task as it is where its files are."""
    if isinstance(task, Language):
        # The Penn Treebank's, as its files give them.
        vocabulary = {"spelled": 10_000, "spare": 51, "symbol": 49}[task.unknown]
        sizes = {"train": 929_589, "validation": 73_760, "test": 82_430}
        facts = TextFacts(vocabulary=vocabulary, tokens=sizes, lines=sizes, sha256={})
        return task.model_copy(update={"facts": facts})
    if isinstance(task, Ucr | Multilabel):
        return task.model_copy(update={"facts": type(task).example().facts})
    return task


@pytest.mark.parametrize("entry", catalog().presets, ids=lambda entry: entry.name)
def test_the_catalogs_study_of_a_preset_can_be_run(entry) -> None:
    sent = StudySpec.model_validate(entry.spec)
    spec = sent.model_copy(update={"task": with_facts(sent.trained_task)})
    description = checked_space(spec).describe()
    drawn = SearchSpace(spec).preset(entry.name)
    assert drawn.spec.model.architecture.model_dump(mode="json") == entry.architecture
    assert drawn.spec.model.parametrization.model_dump(mode="json") == entry.parametrization
    assert drawn.spec.training.model_dump(mode="json") == entry.training
    count = drawn.spec.model.parameter_count()
    assert description.parameter_range.low <= count <= description.parameter_range.high


def study(**fields: object) -> StudySpec:
    return StudySpec.model_validate(
        {"task": {"kind": "digits"}, "architectures": ["rnn"], "parametrizations": ["dense"]}
        | fields
    )


AROUND_RNN_32 = {
    "hidden_size": {"low": 8, "high": 64, "step": 8},
    "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
    "batch_size": {"options": [16, 64]},
    "epoch_updates": 50,
}
"""A space in which preset rnn-32 lies."""


def test_a_preset_in_the_space_has_the_drawn_values_that_lead_to_it() -> None:
    space = SearchSpace(
        study(
            space=AROUND_RNN_32,
            architectures=["rnn", "gru"],
            parametrizations=["dense", "low_rank"],
            seed=7,
        )
    )
    drawn = space.preset("rnn-32")
    assert drawn.drawn == {
        "architecture": "rnn",
        "parametrization": "dense",
        "rnn.hidden_size": 32,
        "training.learning_rate": 3e-3,
        "training.batch_size": 16,
    }
    assert set(drawn.drawn) <= set(space.dimensions)
    assert drawn.spec.seed == 7


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": {"low": 8, "high": 31}},
        {"hidden_size": {"low": 9, "high": 64, "step": 8}},
        {"hidden_size": 16},
        {"learning_rate": {"low": 1e-4, "high": 2e-3}},
        {"batch_size": {"options": [64, 100]}},
        {"decay": 0.99},
        {"clip_norm": None},
        {"activation": "relu"},
        {"activation": {"options": ["relu", "tanh"]}},
    ],
    ids=str,
)
def test_a_preset_outside_the_space_has_no_drawn_values_and_is_whole(change: dict) -> None:
    space = SearchSpace(study(space=AROUND_RNN_32 | change))
    drawn = space.preset("rnn-32")
    assert drawn.drawn == {}
    assert drawn.spec.model.architecture == PRESETS["rnn-32"].architecture
    assert drawn.spec.training == PRESETS["rnn-32"].training
    assert drawn.hyperparameters["rnn.hidden_size"] == 32
    assert drawn.hyperparameters["training.clip_norm"] == 1.0


def test_a_preset_of_another_architecture_is_no_point_of_the_space() -> None:
    space = SearchSpace(study(space=AROUND_RNN_32))
    assert space.preset("lr-gru-128-24").drawn == {}
    assert space.preset("svd-rnn-32-16").drawn == {}
    assert [str(candidate) for candidate in space.candidates] == ["rnn with dense"]


def test_an_unknown_preset_is_refused_with_the_list() -> None:
    told = r"unknown preset 'rnn-33'; did you mean 'rnn-32'\? allowed are "
    with pytest.raises(ValueError, match=told):
        study(presets=["rnn-33"])
    with pytest.raises(ValueError, match="twice"):
        study(presets=["rnn-32", "rnn-32"])


class EveryRow(Digits):
    """The digits with an answer after every row."""

    def signature(self) -> Signature:
        return super().signature().model_copy(update={"output_steps": "every"})


def test_a_preset_that_does_not_fit_the_task_is_refused() -> None:
    spec = study(presets=["rnn-32", "mlp-32-40"]).model_copy(update={"task": EveryRow()})
    with pytest.raises(SpecRefused) as refused:
        checked_space(spec)
    [fault] = refused.value.faults
    assert fault.path == "presets.1"
    assert "mlp-32-40" in fault.message
    assert "allowed is 'last'" in fault.message


def test_presets_widen_the_range_of_parameter_counts() -> None:
    plain = describe(study()).parameter_range
    wide = describe(study(presets=["lrd-highway", "svd-rnn-32-16"])).parameter_range
    highway = model(PRESETS["lrd-highway"], Digits().signature())
    assert wide.high == highway.parameter_count() > plain.high


def test_a_trial_without_parameters_leaves_the_samplers_joint_model_whole() -> None:
    """Optuna keeps dimensions apart that were not always drawn together; no parameters are fine."""
    space = SearchSpace(study(architectures=["rnn", "gru"], parametrizations=["dense", "low_rank"]))
    optuna.logging.disable_default_handler()
    groups = []
    for named in (False, True):
        sampler = Tpe(startup_trials=2).build(seed=0)
        assert isinstance(sampler, TPESampler)
        sampled = optuna.create_study(sampler=sampler, directions=["maximize", "minimize"])
        if named:
            sampled.add_trial(optuna.trial.create_trial(values=[0.5, 100.0], params={}))
        generator = np.random.default_rng(0)
        for _ in range(20):
            trial = sampled.ask()
            space.draw(TrialSource(trial))
            sampled.tell(trial, [generator.random(), generator.random()])
        space.draw(TrialSource(sampled.ask()))
        found = sampler._search_space_group
        assert found is not None
        groups.append({name for group in found.search_spaces for name in group})
    assert groups[0] == groups[1] == set(space.dimensions)


def test_a_draw_after_presets_is_the_draw_without_them() -> None:
    plain, named = SearchSpace(study()), SearchSpace(study(presets=["rnn-32"]))
    for highest in (False, True):
        source = CornerSource(highest=highest)
        assert plain.draw(source) == named.draw(source)
