"""`python -m tests.benchmarks.conversion`: what conversions lose, and how long they take.

Four kinds of matrices: Gaussian; singular values in [0.9, 1.1]; the identity plus rank 6 plus
noise; and geometrically decaying singular values. Errors are `|W - A| / |W|` beside those of the
truncated SVD with at most as many numbers, seconds those of one matrix on one thread.
`--size N` (repeatable) names other sizes than 32, 128 and 256; `--family KIND` (repeatable) names
fewer families.
"""

import argparse
import sys
import time
from collections.abc import Mapping

import torch
from torch import Tensor

from models.compression import convert_weight
from models.math.initialisation import generator_of, normal_, orthogonal_
from models.parametrizations import (
    AnyParametrization,
    FactorizedSvd,
    Householder,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
    PackedRotations,
    RotationSvd,
)
from models.spec import Slot

DECAY = 1e-3
"""The smallest singular value of the decaying matrices; the largest is 1."""


def matrices(size: int) -> Mapping[str, Tensor]:
    """The four kinds of matrices `[n, n]`."""
    generator = generator_of(0)

    def gaussian(*shape: int) -> Tensor:
        return normal_(torch.empty(shape, dtype=torch.float64), 1.0, generator=generator)

    def bases() -> tuple[Tensor, Tensor]:
        u, v = orthogonal_(torch.empty(2, size, size, dtype=torch.float64), generator=generator)
        return u, v

    (u, v), (a, b) = bases(), bases()
    near = 0.9 + 0.2 * torch.rand(size, generator=generator, dtype=torch.float64)
    decaying = torch.logspace(0, torch.log10(torch.tensor(DECAY)).item(), size, dtype=torch.float64)
    spikes = gaussian(size, 6) @ gaussian(6, size) / size
    return {
        "gaussian": gaussian(size, size) / size**0.5,
        "s in [.9, 1.1]": (u * near) @ v.mT,
        "I + rank 6 + noise": torch.eye(size, dtype=torch.float64)
        + spikes
        + 0.02 * gaussian(size, size),
        "decaying s": (a * decaying) @ b.mT,
    }


def members(size: int) -> list[AnyParametrization]:
    """Small, middle and whole members of each family."""
    small, middle = max(1, size // 8), max(1, 3 * size // 8)
    stages = size - 1 if size % 2 == 0 else size
    return [
        *(LowRank(d=d) for d in (small, middle)),
        *(LowRankDiagonal(d=d) for d in (small, middle)),
        *(HouseholderSvd(m1=m, m2=m, bound="free") for m in (small, middle, size)),
        HouseholderSvd(m1=middle, m2=middle, r=0.1),
        *(Householder(m=m) for m in (small, middle, size)),
        *(PackedRotations(count=k) for k in (small, stages)),
        *(RotationSvd(count_u=k, count_v=k) for k in (small, middle)),
        FactorizedSvd(margin=1.0),
    ]


def truncated(weight: Tensor, numbers: int) -> float:
    """The truncated SVD's relative error with at most so many numbers."""
    values = torch.linalg.svdvals(weight)
    rank = min(numbers // (2 * len(weight)), len(weight))
    return float(values[rank:].norm() / values.norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--family", action="append")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tell("| n | matrix | family | numbers | error | SVD, as many numbers | seconds |")
    tell("|---|---|---|---|---|---|---|")
    for size in arguments.size or (32, 128, 256):
        for name, weight in matrices(size).items():
            for member in members(size):
                if not arguments.family or member.kind in arguments.family:
                    tell(row_of(name, weight, member))


def row_of(name: str, weight: Tensor, member: AnyParametrization) -> str:
    """One conversion as a row of the table."""
    size = len(weight)
    start = time.perf_counter()
    linear = convert_weight(weight, member)
    seconds = time.perf_counter() - start
    found = linear.dense_weight().detach()[0]
    error = float((found - weight).norm() / weight.norm())
    numbers = member.parameter_count(Slot(out_features=size, in_features=size))
    given = member.model_dump(exclude_defaults=True).items()
    fields = ", ".join(f"{key}={value}" for key, value in given)
    return (
        f"| {size} | {name} | {member.kind} {fields} | {numbers} | {error:.3g} "
        f"| {truncated(weight, numbers):.3g} | {seconds:.2f} |"
    )


def tell(line: str) -> None:
    """Write a line at once: the large conversions take a while."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
