"""The silero VAD, and speech that espeak-ng says, with silences and noise."""

import io
import shutil
import subprocess
import wave
from pathlib import Path

import numpy as np
from scipy.signal import resample_poly

from search.graphs.fine_tune import FineTune
from search.graphs.metrics import Agreement, Kl
from tests.benchmarks.networks.case import Case, Further, Skipped, Wanted, packaged

SAMPLES, FRAMES = 60, 125
"""Of 32 ms each: 4 s a sample."""
_STEP, _CONTEXT, _RATE = 512, 64, 16_000
_MEMBER = "silero_vad/data/silero_vad_16k_sequence.onnx"
_SHA256 = "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85"
_VOICES = (
    "en-gb",
    "en-us",
    "de",
    "fr-fr",
    "es",
    "it",
    "pt",
    "pl",
    "ru",
    "nl",
    "sv",
    "tr",
    "cs",
    "fi",
)
_VARIANTS = ("", "+f2", "+m3", "+f4", "+m7")
_WORDS = (
    "model",
    "station",
    "paper",
    "banana",
    "seven",
    "morning",
    "window",
    "river",
    "doctor",
    "music",
    "table",
    "orange",
    "radio",
    "family",
    "number",
    "garden",
    "hotel",
    "camera",
    "winter",
    "summer",
    "letter",
    "animal",
    "island",
    "total",
    "normal",
    "central",
    "final",
)


def speech(folder: Path | None) -> Case:
    """The network with samples."""
    content = packaged(folder, "silero_vad", _MEMBER, _SHA256)
    program = shutil.which("espeak-ng")
    if program is None:
        raise Skipped("espeak-ng is not installed, which says the samples")
    generator = np.random.default_rng(0)
    said = [_said(program, generator) for _ in range(SAMPLES)]
    return Case(
        title="silero VAD",
        original=content,
        arrays={"input": np.stack([_frames(_mixed(one, generator)) for one in said])},
        metric=Kl(column=True),
        decisions=Agreement(column=True),
        outputs=("speech_probs",),
        data=f"{SAMPLES} samples of 4 s at 16 kHz: words said by espeak-ng in {len(_VOICES)} "
        "languages and 5 voices between silences, with white or brown noise at 0 to 30 dB",
        each=True,
        zeros=("h", "c"),
        wanted=Wanted(ratio=10, decided=0.983, rough_ratio=11),
        further=Further(left=0.3, how=FineTune(epochs=20)),
    )


def _said(program: str, generator: np.random.Generator) -> np.ndarray:
    """A few words in a voice, at 16 kHz."""
    words = " ".join(generator.choice(_WORDS, int(generator.integers(2, 6))))
    voice = str(generator.choice(_VOICES)) + str(generator.choice(_VARIANTS))
    speed, pitch = (str(int(generator.integers(*span))) for span in ((110, 220), (20, 80)))
    command = [program, "-v", voice, "-s", speed, "-p", pitch, "--stdout", words]
    spoken = subprocess.run(command, check=True, capture_output=True).stdout
    with wave.open(io.BytesIO(spoken)) as file:
        rate = file.getframerate()
        # The header of a stream does not know its length.
        sound = np.frombuffer(file.readframes(2**24), np.int16).astype(np.float64) / 2**15
    return resample_poly(sound, _RATE, rate)


def _mixed(said: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Words somewhere in 4 s, and noise."""
    sound = np.zeros(FRAMES * _STEP)
    start = int(generator.integers(0, len(sound) // 2))
    piece = said[: len(sound) - start]
    sound[start : start + len(piece)] = piece
    noise = generator.standard_normal(len(sound))
    if generator.random() < 0.5:
        noise = np.cumsum(noise) - np.convolve(np.cumsum(noise), np.ones(800) / 800, "same")
    decibels = generator.uniform(0, 30)
    power = np.square(piece).mean() / np.square(noise).mean() / 10 ** (decibels / 10)
    sound = (sound + noise * np.sqrt(power)) * 10 ** generator.uniform(-1, 0)
    return np.clip(sound, -1, 1)


def _frames(sound: np.ndarray) -> np.ndarray:
    """Frames of 512 numbers behind the last 64 of the one before [frames, 576]."""
    frames = sound.reshape(FRAMES, _STEP)
    before = np.concatenate([np.zeros((1, _CONTEXT)), frames[:-1, -_CONTEXT:]])
    return np.concatenate([before, frames], axis=1).astype(np.float32)
