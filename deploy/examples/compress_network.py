"""From a network to a smaller ONNX file, through a server's API.

    python deploy/examples/compress_network.py http://127.0.0.1:8080 small.onnx

With `--model` and `--data` it is your own .onnx with an .npz of arrays for its inputs, samples
first. Without them torch exports a small network, and its samples are random.
"""

import argparse
import tempfile
from pathlib import Path

from service.client import Client


def main() -> None:
    """Read the arguments and write the smaller file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server")
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path, help="an .onnx")
    parser.add_argument("--data", type=Path, help="an .npz with an array for each input")
    parser.add_argument("--trials", type=int, default=30)
    given = parser.parse_args()
    if (given.model is None) != (given.data is None):
        parser.error("--model and --data go together")
    with tempfile.TemporaryDirectory() as folder:
        files = (given.model, given.data) if given.model else exported(Path(folder))
        compress(given.server, *files, given.out, trials=given.trials)


def compress(server: str, network: Path, data: Path, out: Path, *, trials: int) -> None:
    """Upload both, search, and download the smallest file that answers as the original does."""
    with Client(server) as client:
        model = client.upload_model(network)
        arrays = client.upload_dataset(data, holds="arrays")
        task = {"kind": "model_outputs", "model": model.id, "data": arrays.id}
        study = client.submit({"task": task, "budget": {"trials": trials}})
        for event in client.watch(study.id):
            if event.kind == "trial" and event.payload["state"] == "complete":
                print(event.payload["trial"], event.payload["bytes"], event.payload["quality"])
        chosen = client.choose_file(study.id)
        if chosen is None:
            raise SystemExit(f"nothing is smaller: {client.study(study.id).state_reason}")
        client.onnx(study.id, chosen.trial, out)
        report = client.network_report(study.id, chosen.trial)
        print(f"{out}: {chosen.rule}; {report.bytes_before} to {report.bytes_after} bytes")
        for metric in report.test.metrics:
            print(f"on the test part: {metric.kind} {metric.value:.4g}")


def exported(folder: Path) -> tuple[Path, Path]:
    """A network of torch as an ONNX file, and samples for it."""
    import numpy as np
    import torch
    from torch import nn

    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(40, 64), nn.Tanh(), nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 6), nn.Softmax(-1)
    )
    torch.onnx.export(
        network,
        (torch.zeros(1, 40),),
        folder / "network.onnx",
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "N"}, "y": {0: "N"}},
        dynamo=False,
    )
    samples = np.random.default_rng(0).standard_normal((400, 40)).astype(np.float32)
    np.savez(folder / "samples.npz", x=samples)
    return folder / "network.onnx", folder / "samples.npz"


if __name__ == "__main__":
    main()
