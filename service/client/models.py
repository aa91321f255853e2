"""Uploaded models from the client: upload, look at, download, delete."""

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
from service.client.transport.steps import Steps, Stream, call, stream


class _AnyDetail(RootModel[AnyModelDetail]):
    """One model, of either sort."""


class ModelCalls(FileCalls):
    """The calls for one's own trained models."""

    @stream
    def models(self) -> Stream[ModelDocument | NetworkDocument]:
        """All uploaded models, newest first."""
        yield from self.pages(ModelPage, MODELS, {})

    @call
    def model(self, model_id: str) -> Steps[ModelDetail | NetworkDetail]:
        """One uploaded model: its architecture, tensors and tasks, or its graph and layers."""
        return (yield from self.ask(_AnyDetail, "GET", model_path(model_id))).root

    @call
    def upload_model(
        self,
        path: Path | str,
        *,
        name: str | None = None,
        nonlinearity: str | None = None,
        output_steps: Literal["last", "every"] | None = None,
        sequence_length: int | None = None,
        told: ToldProgress | None = None,
    ) -> Steps[ModelDetail | NetworkDetail]:
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
        found = yield from self._upload(
            _AnyDetail,
            MODELS,
            {"file": path},
            told,
            name=name,
            nonlinearity=nonlinearity,
            output_steps=output_steps,
            sequence_length=None if sequence_length is None else str(sequence_length),
        )
        return found.root

    @call
    def download_model(
        self, model_id: str, out: Path | str, *, told: ToldProgress | None = None
    ) -> Steps[Downloaded]:
        """Fetch a model's checkpoint, or its ONNX file, into the file `out`, whole or not at all.

        Raises:
            Damaged: the bytes that arrived do not have the digest that the server names.
        """
        return (yield from self._download(f"{model_path(model_id)}/checkpoint", out, told))

    @call
    def delete_model(self, model_id: str) -> Steps[None]:
        """Delete a model that no study needs any more."""
        yield from self._remove(model_path(model_id))
