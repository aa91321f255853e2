"""How points of the front are trained further, as a document says it."""

from pydantic import Field

from models.spec import Spec


class FineTune(Spec):
    """Train the stored numbers of the front's files further, by the original's own answers.

    No labels are needed. Files keep their layers' choices and their bytes: integers and scales,
    factors, biases and what was left as it is get other numbers.
    """

    epochs: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="passes through the calibration part. After each the choosing part says "
        "whether the file is the best so far; the untrained one is among them",
    )
    learning_rate: float = Field(
        default=3e-3,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="of Adam, as a share of the root mean square of each tensor as it begins. It "
        "grows over the first steps, and falls as a cosine to 0",
    )
    batch_size: int = Field(
        default=8,
        ge=1,
        le=4096,
        description="samples of a step; networks that are fed one by one take 1",
    )
    temperature: float = Field(
        default=2.0,
        gt=0,
        le=100,
        allow_inf_nan=False,
        description="what logits are divided by before distributions are compared (T); the loss is "
        "T² times their divergence. Numbers that are no distributions have none",
    )
    largest_gradient: float = Field(
        default=1.0,
        gt=0,
        allow_inf_nan=False,
        description="the norm of all gradients together that is let pass",
    )
    points: int = Field(
        default=12,
        ge=1,
        le=100,
        description="how many points of the front are trained at most; of more, some that are "
        "spread over it",
    )
