"""Studies that compress a network of others: from what is sent to what is stored, and checks."""

from collections.abc import Iterator

from models.graphs.documents import NetworkFacts
from search.documents.runtimes import RUNTIME_KINDS
from search.errors import DataError, Fault, SpecRefused
from search.graphs.model_outputs import ModelOutputs, NetworkTaskFacts
from search.spaces import margins_of_limits
from search.studies.feasibility import region_faults
from search.studies.spec import StudySpec
from search.tasks import DataSources
