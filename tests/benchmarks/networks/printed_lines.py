"""The recogniser of PP-OCRv4, and lines of text that Pillow draws."""

import string
from pathlib import Path
from typing import Any

import numpy as np

from search.graphs.fine_tune import FineTune
from search.graphs.metrics import CtcString, Kl
from tests.benchmarks.networks.case import Case, Further, Skipped, Wanted, packaged

LINES = 120
_HEIGHT, _WIDTH = 48, 320
_FONTS = Path("/usr/share/fonts")
_MEMBER = "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"
_SHA256 = "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b"
_SYMBOLS = string.ascii_letters + string.digits + "-.,:/&"


def printed_lines(folder: Path | None, count: int = LINES) -> Case:
    """The network with samples, so many."""
    content = packaged(folder, "rapidocr_onnxruntime", _MEMBER, _SHA256)
    try:
        # Only this benchmark draws text.
        from PIL import Image, ImageDraw, ImageFont  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise Skipped("Pillow is not installed, which draws the samples") from error
    fonts = sorted(_FONTS.rglob("*.ttf"))
    if not fonts:
        raise Skipped(f"there is no TrueType font below {_FONTS}, in which samples are drawn")
    generator = np.random.default_rng(0)
    pictures = [_line(Image, ImageDraw, ImageFont, fonts, generator) for _ in range(count)]
    return Case(
        title="PP-OCRv4 recogniser",
        original=content,
        arrays={"x": np.stack(pictures)},
        metric=Kl(),
        decisions=CtcString(),
        outputs=("softmax_11.tmp_0",),
        data=f"{count} lines of Latin letters and digits in {len(fonts)} fonts of 22 to 34 pixels, "
        "turned by up to 2 degrees, with noise; 48 by 320 pixels",
        trials=40,
        wanted=Wanted(ratio=7, decided=0.75, rough_ratio=8.9),
        further=Further(
            left=0.59, how=FineTune(epochs=8, batch_size=4, learning_rate=5e-4), decided=0.93
        ),
    )


def _line(
    images: Any, drawing: Any, typefaces: Any, fonts: list[Path], generator: np.random.Generator
) -> np.ndarray:
    """One picture [3, 48, 320] in -1..1."""
    words = [
        "".join(generator.choice(list(_SYMBOLS), int(generator.integers(2, 8)))) for _ in range(3)
    ]
    typeface = typefaces.truetype(
        str(generator.choice([str(font) for font in fonts])), int(generator.integers(22, 35))
    )
    paper, ink = generator.uniform(170, 255), generator.uniform(0, 90)
    image = images.new("L", (_WIDTH, _HEIGHT), int(paper))
    place = (int(generator.integers(2, 12)), int(generator.integers(2, 10)))
    drawing.Draw(image).text(place, " ".join(words), font=typeface, fill=int(ink))
    image = image.rotate(generator.uniform(-2, 2), fillcolor=int(paper))
    values = np.asarray(image, np.float64) + generator.normal(
        0, generator.uniform(0, 12), image.size[::-1]
    )
    one = (np.clip(values, 0, 255) / 127.5 - 1).astype(np.float32)
    return np.repeat(one[None], 3, axis=0)
