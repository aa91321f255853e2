"""What a named system of a paper is, and what systems of several families share."""

from pydantic import Field

from models.architectures import AnyArchitecture
from models.parametrizations import AnyFamily
from models.spec import Spec
from search.tasks import AnyTask
from search.training.trial_spec import TrainingSpec


class Preset(Spec):
    """A system with the sizes and the training that its source gives it."""

    name: str
    title: str
    paper: str
    description: str = Field(
        description="what it is, where its numbers are from, and what differs from the source"
    )
    architecture: AnyArchitecture
    parametrization: AnyFamily
    training: TrainingSpec
    task: AnyTask = Field(
        description="the source's own task; where its data are licensed or the user's to get, the "
        "study begins when they are in the data folder"
    )


SPECTRAL = (
    "Zhang, Lei, Dhillon: Stabilizing Gradients for Deep Neural Networks via Efficient SVD "
    "Parameterization (2018, arXiv:1803.09327)"
)
PASSTHROUGH = "Miceli Barone: Low-rank passthrough neural networks (2016, arXiv:1603.03116)"
"""Papers that systems of several families are from."""

SPECTRAL_TRAINING = TrainingSpec(learning_rate=1e-3, decay=0.99, batch_size=128, clip_norm=None)
"""How the systems of Zhang et al. are trained, as their released configuration has it."""
