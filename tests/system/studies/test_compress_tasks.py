"""Compressing what answers at every step, or with numbers, and learning from its answers."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from models import checkpoint
from tests.service.running import Server, wait_until

TEXT: dict[str, Any] = {"kind": "language", "corpus": "file", "file": "verse.txt", "window": 6}
FEW = {"train_samples": 200, "validation_samples": 50, "test_samples": 50}
TASKS: dict[str, dict[str, Any]] = {
    "symbols at every step": {"kind": "copy", "lag": 2, **FEW},
    "characters of a stream": TEXT,
    "words that are embedded": {**TEXT, "level": "word", "embedding": 5},
    "a number": {"kind": "addition", "steps": 8, **FEW},
}
SIZE = 6


class Plain(nn.Module):
    """What the dense file of an LSTM with trained first states loads into."""

    def __init__(self, state: Mapping[str, Tensor], *, every: bool) -> None:
        super().__init__()
        self.every = every
        reads = state["rnn.weight_ih_l0"].shape[1]
        self.rnn = nn.LSTM(reads, SIZE, batch_first=True)
        self.readout = nn.Linear(SIZE, len(state["readout.bias"]))
        self.embedding = None
        if "embedding.weight" in state:
            tokens, numbers = state["embedding.weight"].shape
            self.embedding = nn.Embedding(tokens, numbers)
        self.h_0, self.c_0 = (nn.Parameter(torch.zeros(1, 1, SIZE)) for _ in range(2))
        self.load_state_dict(dict(state))

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.embedding is None else self.embedding(x)
        first = tuple(part.repeat(1, len(x), 1) for part in (self.h_0, self.c_0))
        states, _ = self.rnn(x, first)
        return self.readout(states if self.every else states[:, -1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    texts = tmp_path_factory.mktemp("texts")
    lines = ["the cat sat", "the dog sat on the mat", "a cat", "on the mat", "the end"] * 12
    (texts / "verse.txt").write_text("".join(f"{line}\n" for line in lines))
    place = {"REFLECTORY_DATA": str(texts)}
    running = Server(tmp_path_factory.mktemp("tasks") / "data", environment=place)
    yield running.start()
    running.close()


def finished(server: Server, task: Mapping[str, Any], **given: Any) -> str:
    spec = {
        "task": dict(task),
        "objectives": ["quality", "parameters"],
        "sampler": {"kind": "random"},
        "seed": 4,
        **given,
    }
    study = server.wait(server.submit(spec))
    assert (study["state"], study["state_reason"]) == ("finished", None)
    return str(study["id"])


def file_of(server: Server, path: str) -> bytes:
    def there() -> bytes | None:
        answer = server.http.get(path)
        assert answer.status_code in (200, 202), answer.text
        return answer.content if answer.status_code == 200 else None

    return wait_until(there, what=path)


@pytest.mark.parametrize("name", TASKS)
def test_a_model_of_this_task_is_compressed_and_taught_by_itself(
    server: Server, name: str, tmp_path: Path
) -> None:
    task = TASKS[name]
    first = finished(
        server,
        task,
        architectures=["lstm"],
        parametrizations=["dense"],
        space={"hidden_size": SIZE, "lstm.layers": 1},
        budget={"trials": 1, "epochs": 1},
    )
    content = file_of(server, f"/v1/studies/{first}/trials/0/checkpoint")
    sent = server.http.post("/v1/models", files={"file": ("m.safetensors", content)})
    assert sent.status_code == 201, sent.text
    second = finished(
        server,
        task,
        compress={"model": sent.json()["id"], "distillation": True},
        parametrizations=["low_rank", "householder_svd"],
        space={"compress.distillation_weight": {"low": 0.5, "high": 1.0}},
        budget={"trials": 3, "epochs": 1},
    )
    original, *others = server.trials(second)
    assert original["values"]["quality"] == server.trials(first)[0]["values"]["quality"]
    for trial in others:
        assert trial["outcome"] == "complete", trial["reason"]
        assert trial["hyperparameters"]["compress.temperature"] >= 1
        assert [row["epoch"] for row in server.curve(second, trial["number"])] == [0, 1]
    for point in server.get(f"/v1/studies/{second}/front")["points"]:
        path = f"/v1/studies/{second}/trials/{point['trial']}"
        loaded = checkpoint.load(file_of(server, f"{path}/checkpoint"))
        signature = loaded.spec.signature
        assert signature.output_steps == ("last" if name == "a number" else "every")
        torch.manual_seed(0)
        x = torch.randn(3, 7, signature.input_size)
        if signature.vocabulary is not None:
            x = torch.randint(signature.vocabulary, (3, 7))
        # What the network reads of raw samples, which are what the file reads.
        assert loaded.interface is not None
        raw = loaded.interface.raw(x)
        x = loaded.preprocess(raw)
        state = safetensors.torch.load(file_of(server, f"{path}/dense"))
        session = onnxruntime.InferenceSession(file_of(server, f"{path}/onnx"))
        (found, *_) = session.run(None, {session.get_inputs()[0].name: raw.numpy()})
        assert isinstance(found, np.ndarray)
        with torch.no_grad():
            answer = loaded.module.eval()(x)
            plain = Plain(state, every=signature.output_steps == "every")(x)
        torch.testing.assert_close(plain, answer, rtol=1e-4, atol=1e-5)
        told = loaded.interface.answer.numbers(answer)
        torch.testing.assert_close(torch.from_numpy(found), told, rtol=1e-3, atol=1e-4)
