"""Trained plain matrices to structured ones and back: weights, our networks, and any module."""

from models.compression.fit import FITS
from models.compression.fit.convert import convert_path, convert_weight
from models.compression.networks import convert, fold
from models.compression.replace import compress, replace_layers
from models.compression.report import ConversionReport, LayerConversion
from models.compression.torch_layers.from_torch import from_torch
from models.compression.torch_layers.plain_network import plain_module, plain_network
from models.compression.torch_layers.to_torch import to_torch, torch_fault

__all__ = [
    "FITS",
    "ConversionReport",
    "LayerConversion",
    "compress",
    "convert",
    "convert_path",
    "convert_weight",
    "fold",
    "from_torch",
    "plain_module",
    "plain_network",
    "replace_layers",
    "to_torch",
    "torch_fault",
]
