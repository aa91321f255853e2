"""What a process that serves does not import: each of these takes as long as all the rest."""

import subprocess
import sys

import torch

from models.kernels.choice import kernels_are_built, wanted_backend

_HEAVY = (
    "torch._dynamo",
    "sklearn",
    "scipy",
    "sympy",
    "onnxruntime",
    "alembic",
    "psycopg",
    "pooch",
)


def test_the_api_and_the_coordinator_start_without_tracers_and_forests() -> None:
    program = "import sys, service.app, service.processes.coordination; print(*sys.modules)"
    imported = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert not {*_HEAVY} & {*imported.stdout.split()}


def test_a_servers_process_does_without_pandas_where_it_is_installed() -> None:
    program = """
import sys
from search.pandas_import import keep_pandas_out
keep_pandas_out()
keep_pandas_out()
import service.processes.dashboard
from sklearn.ensemble import RandomForestRegressor
RandomForestRegressor(n_estimators=2).fit([[0.0], [1.0]], [0.0, 1.0]).predict([[0.5]])
# Asks where pandas is.
import torch._dynamo.trace_rules
print({"pandas", "pyarrow"} & set(sys.modules), "sklearn" in sys.modules)
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert answer.stdout.strip() == "set() True"


def test_the_dashboard_starts_without_torch() -> None:
    program = "import sys, service.processes.dashboard; print('torch' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert answer.stdout.strip() == "False"


def test_workers_have_the_tracer_before_their_first_step_and_idle_machines_do_not() -> None:
    """Optimizers import it then: once per attempt, were it not in the server that forks them."""
    program = """
import sys
from search.agents.forking import fork_server
print("torch._dynamo" in sys.modules)
fork_server.before_the_first_slot()
print("torch._dynamo" in sys.modules)
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert answer.stdout.split() == ["False", "True"]


def test_a_model_is_laid_out_without_the_tracer() -> None:
    """The coordinator does so for each suggestion: it would take 70 MiB and ten times as long."""
    program = """
import sys
from models.architectures import Gru
from models.model import ModelSpec
from models.parametrizations import FactorizedSvd, HouseholderSvd, LowRank, PackedRotations
from models.spec import Signature
signature = Signature(input_size=2, sequence_length=3, output_size=2)
for structure in (
    FactorizedSvd(), HouseholderSvd(m1=2, m2=2), LowRank(d=2), PackedRotations(count=3)
):
    architecture = Gru(hidden_size=8)
    ModelSpec(
        architecture=architecture, parametrization=structure, signature=signature
    ).shape_key()
print("torch._dynamo" in sys.modules)
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert answer.stdout.strip() == "False"


def test_parameters_of_every_kind_are_counted_without_the_tracer() -> None:
    """An API process counts them for each trial that ends, the coordinator to predict speeds."""
    program = """
import sys
from service.processes import tracer
tracer.keep_out()
from models.report import parameter_report
from tests.conformance.model_specs import pairs, specs
for pair in pairs():
    parameter_report(next(iter(specs(*pair))))
print("torch._dynamo" in sys.modules)
tracer.let_in()
import torch
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert answer.stdout.split() == ["False", "2.0"]


def test_questions_of_traced_code_are_marked_as_torch_marks_them() -> None:
    def marked_by_torch() -> None:
        """Nothing."""

    torch.compiler.assume_constant_result(marked_by_torch)
    for question in (kernels_are_built, wanted_backend):
        assert vars(question) == vars(marked_by_torch)
