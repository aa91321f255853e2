"""Uploaded models from the client: upload, look at, download, delete."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import RootModel

from service.api.models.schemas import (
    AnyModelDetail,
    ModelDetail,
    ModelDocument,
    ModelPage,
    NetworkDetail,
    NetworkDocument,
)
from service.api.paths import MODELS, model_path
from service.client.downloaded import Downloaded
from service.client.downloads import ToldProgress
from service.client.files import FileCalls


class _AnyDetail(RootModel[AnyModelDetail]):
    """One model, of either sort."""


class ModelCalls(FileCalls):
    """The calls for one's own trained models."""

    def models(self) -> Iterator[ModelDocument | NetworkDocument]:
        """All uploaded models, newest first."""
        return self._pages(ModelPage, MODELS, {})

    def model(self, model_id: str) -> ModelDetail | NetworkDetail:
        """One uploaded model: its architecture, tensors and tasks, or its graph and layers."""
        return self._ask(_AnyDetail, "GET", model_path(model_id)).root

    def upload_model(
        self,
        path: Path,
        *,
        name: str | None = None,
        nonlinearity: str | None = None,
        output_steps: Literal["last", "every"] | None = None,
        sequence_length: int | None = None,
        told: ToldProgress | None = None,
    ) -> ModelDetail | NetworkDetail:
        """Upload a trained model; the same file with the same options is stored once.

        Args:
            path: safetensors: a checkpoint of a trial, or the state dict of plain torch layers; or
                the ONNX file of any network, for which there are no options.
            name: by default the file's own.
            nonlinearity: of an `nn.RNN` (by default `tanh`), or between linear layers (`relu`).
            output_steps: whether the readout answers after the `last` step or after `every` one.
            sequence_length: steps of a sample, where linear layers read all of them at once.
            told: called with the bytes sent so far and in all.

        Raises:
            Refused: the file is no model that is known; the problem says why.
            OSError: the file is not there.
        """
        return self._upload(
            _AnyDetail,
            MODELS,
            {"file": path},
            told,
            name=name,
            nonlinearity=nonlinearity,
            output_steps=output_steps,
            sequence_length=None if sequence_length is None else str(sequence_length),
        ).root

    def download_model(
        self, model_id: str, out: Path, *, told: ToldProgress | None = None
    ) -> Downloaded:
        """Fetch a model's checkpoint, or its ONNX file, into the file `out`, whole or not at all.

        Raises:
            Damaged: the bytes that arrived do not have the digest that the server names.
        """
        return self._download(f"{model_path(model_id)}/checkpoint", out, told)

    def delete_model(self, model_id: str) -> None:
        """Delete a model that no study needs any more."""
        self._remove(model_path(model_id))
