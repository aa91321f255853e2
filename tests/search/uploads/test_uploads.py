import logging
import os
import subprocess
import sys
import threading
import time
from io import RawIOBase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search.errors import DataError
from search.uploads import container, decoding
from search.uploads.dataset_metadata import ReadingOptions
from search.uploads.uploads import SUFFIXES, UploadFacts, UploadLimits, decode_upload
from storage.errors import StoreFull
from tests.search.uploads.upload_cases import npz_bytes

CSV = b"a,1,2\nb,3,4\na,5,6\n"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "container"


def _upload(
    tmp_path: Path,
    content: bytes,
    out: Path,
    *,
    suffix: str = ".csv",
    test: bytes | None = None,
    limits: UploadLimits | None = None,
    **options: str,
) -> UploadFacts:
    paths = {"file": tmp_path / "file"}
    paths["file"].write_bytes(content)
    if test is not None:
        paths["test"] = tmp_path / "test"
        paths["test"].write_bytes(test)
    return decode_upload(
        paths,
        suffix=suffix,
        options=ReadingOptions.model_validate(options),
        out=out,
        limits=limits or UploadLimits(),
    )


def _refusal(tmp_path: Path, content: bytes, out: Path, **how) -> str:
    with pytest.raises(DataError) as refused:
        _upload(tmp_path, content, out, **how)
    assert not out.exists()
    return str(refused.value)


def test_an_upload_becomes_its_container(tmp_path: Path, out: Path) -> None:
    found = _upload(tmp_path, CSV, out, test=CSV)
    kept = container.read(out)
    assert kept.facts == found.facts
    assert kept.preview == found.preview
    assert found.facts.samples == {"train": 3, "test": 3}
    np.testing.assert_array_equal(kept.x[:3, :, 0], [[1, 2], [3, 4], [5, 6]])


def test_every_format_has_a_reader() -> None:
    assert {".npz", ".csv", ".tsv", ".ts", ".parquet"} <= set(SUFFIXES) == set(decoding.READERS)


def test_a_refusal_reaches_the_caller_in_words(tmp_path: Path, out: Path) -> None:
    assert "line 2 has 2 columns" in _refusal(tmp_path, b"a,1,2\nb,1\n", out)
    assert _refusal(tmp_path, CSV, out, test=b"a,x\n").startswith("in the test file: ")
    assert "'.exe' are not read; allowed: .npz" in _refusal(tmp_path, CSV, out, suffix=".exe")


def test_options_reach_the_reader(tmp_path: Path, out: Path) -> None:
    found = _upload(tmp_path, b"1,2\n3,4\n", out, problem="forecasting")
    assert found.facts.problem == "forecasting"


def test_memory_is_limited(tmp_path: Path, out: Path) -> None:
    # The array as float32 is within what may be decoded, and beyond what the process may hold.
    large = npz_bytes({"x": np.zeros((2, 2**25, 1), dtype=np.int8), "y": np.array([0, 1])})
    limits = UploadLimits(memory_bytes=2**28)
    message = _refusal(tmp_path, large, out, suffix=".npz", limits=limits)
    assert "more memory than its limit of 0.25 GiB (268435456 bytes)" in message


def test_the_decoded_size_is_limited(tmp_path: Path, out: Path) -> None:
    arrays = npz_bytes({"x": np.zeros((2, 1000)), "y": np.array([0, 1])})
    limits = UploadLimits(decoded_bytes=10_000)
    assert "at most 10000" in _refusal(tmp_path, arrays, out, suffix=".npz", limits=limits)


def test_the_container_cannot_outgrow_its_limit(tmp_path: Path, out: Path) -> None:
    # x fits; y in eight bytes a sample does not, which only writing shows.
    arrays = npz_bytes(
        {"x": np.zeros((400_000, 1), dtype=np.int8), "y": np.arange(400_000) % 2 > 0}
    )
    limits = UploadLimits(decoded_bytes=1_700_000)
    message = _refusal(tmp_path, arrays, out, suffix=".npz", limits=limits)
    assert message == "the arrays take more than 1700000 bytes"


def test_time_is_limited_and_the_process_is_gone(tmp_path: Path, out: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Opening a pipe that nobody writes to waits for ever, without using the processor.
    with pytest.raises(DataError, match=r"took longer than its limit of 1 seconds"):
        decode_upload(
            {"file": pipe},
            suffix=".csv",
            options=ReadingOptions(),
            out=out,
            limits=UploadLimits(seconds=1),
        )
    # Nobody reads from the pipe any more: a writer that does not wait is refused.
    with pytest.raises(OSError, match="No such device"):
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)


def _write_rows(writer: RawIOBase, *, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        writer.write(b"a,1,2\n")
        time.sleep(0.01)


def test_the_reader_ends_with_a_service_that_is_killed(tmp_path: Path, out: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = (
        "import sys; from pathlib import Path\n"
        "from search.uploads.dataset_metadata import ReadingOptions\n"
        "from search.uploads.uploads import UploadLimits, decode_upload\n"
        "decode_upload({'file': Path(sys.argv[1])}, suffix='.csv', options=ReadingOptions(),"
        " out=Path(sys.argv[2]), limits=UploadLimits())\n"
    )
    service = subprocess.Popen([sys.executable, "-c", code, str(pipe), str(out)])
    try:
        # Opening waits until the reader is there; as long as this is open, it waits for more.
        with pipe.open("wb", buffering=0) as writer:
            writer.write(CSV)
            service.kill()
            service.wait(timeout=300)
            with pytest.raises(BrokenPipeError):
                _write_rows(writer, seconds=20)
    finally:
        service.kill()
        service.wait(timeout=300)
    assert not out.exists()


def test_a_crash_is_logged_and_told(
    tmp_path: Path, out: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(DataError, match=r"crashed .* 2 GiB"):
        decode_upload(
            {"file": tmp_path / "nowhere"},
            suffix=".csv",
            options=ReadingOptions(),
            out=out,
            limits=UploadLimits(),
        )
    (record,) = caplog.records
    assert "FileNotFoundError" in vars(record)["errors"]
    assert not out.exists()


def test_the_reader_sees_none_of_the_services_environment(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFLECTORY_SECRET", "s3cret")
    pipe, seen = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)

    def look() -> None:
        # The reader waits for a writer; meanwhile its environment can be read.
        while not seen:
            for entry in Path("/proc").glob("[0-9]*"):
                try:
                    if b"search.uploads.upload_reader" in (entry / "cmdline").read_bytes():
                        environment = (entry / "environ").read_bytes()
                        if environment:
                            seen.append(environment)
                except OSError:
                    continue
        pipe.write_bytes(CSV)

    watcher = threading.Thread(target=look)
    watcher.start()
    found = decode_upload(
        {"file": pipe}, suffix=".csv", options=ReadingOptions(), out=out, limits=UploadLimits()
    )
    watcher.join()
    assert found.facts.samples == {"unassigned": 3}
    assert b"s3cret" not in seen[0]
    assert b"OPENBLAS_NUM_THREADS=1" in seen[0]


def test_the_reader_does_without_torch() -> None:
    code = (
        "import io, json, sys\n"
        "sys.stdin = io.StringIO(json.dumps({'paths': {'file': '/dev/null'}, 'suffix': '.csv',"
        " 'options': {}, 'out': '', 'limits': {'memory_bytes': 2**31, 'seconds': 60,"
        " 'decoded_bytes': 2**20}}))\n"
        "from search.uploads import upload_reader\n"
        "upload_reader.main()\n"
        "assert 'numpy' in sys.modules and 'torch' not in sys.modules\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, timeout=600, text=True
    )
    assert answer.stdout == '{"refused": "the table is empty: 0 rows"}'


@pytest.mark.parametrize(
    ("content", "suffix", "options"),
    [(CSV, ".csv", {}), (npz_bytes({"a": np.ones((3, 2))}), ".npz", {"holds": "arrays"})],
    ids=["samples", "arrays"],
)
def test_a_disk_that_is_full_is_not_the_files_fault(
    tmp_path: Path, out: Path, content: bytes, suffix: str, options: dict[str, Any]
) -> None:
    out.symlink_to("/dev/full")
    with pytest.raises(StoreFull, match="no room"):
        _upload(tmp_path, content, out, suffix=suffix, **options)
    assert not out.is_symlink()
