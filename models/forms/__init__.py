"""What a weight is when it is applied, whatever it is stored as: one class per file."""

from models.forms.batched import BatchedForm
from models.forms.biased import BiasedForm
from models.forms.dense import DenseForm
from models.forms.form import (
    Form,
    Fourier,
    Matrices,
    Thin,
    Turns,
    Whole,
    factored_form_pays,
)
from models.forms.fourier import FourierForm, TransformForm, fourier_form_pays
from models.forms.layered import LayeredForm, joined
from models.forms.low_rank import LowRankForm
from models.forms.masked import MaskedForm
from models.forms.rotated import RotatedForm, rotated_form_pays

__all__ = [
    "BatchedForm",
    "BiasedForm",
    "DenseForm",
    "Form",
    "Fourier",
    "FourierForm",
    "LayeredForm",
    "LowRankForm",
    "MaskedForm",
    "Matrices",
    "RotatedForm",
    "Thin",
    "TransformForm",
    "Turns",
    "Whole",
    "factored_form_pays",
    "fourier_form_pays",
    "joined",
    "rotated_form_pays",
]
