"""Files in onnxruntime, on the CPU, on one thread unless more are asked for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

from models.errors import GraphRefused

AnyArray: TypeAlias = NDArray[Any]
Feed: TypeAlias = Mapping[str, AnyArray]
"""The inputs of one run by name."""
Level: TypeAlias = Literal["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"]

_LONGEST_MESSAGE = 300
_OUT_OF_MEMORY = ("bad_alloc", "Failed to allocate memory", "bad allocation")


class GraphSession:
    """A file that was loaded; what can be computed without an input is computed by then."""

    def __init__(
        self,
        content: bytes,
        *,
        level: Level = "ORT_ENABLE_ALL",
        optimized_path: Path | None = None,
        arena: bool = True,
        threads: int = 1,
    ) -> None:
        """Load a file; the graph that is run is saved at `optimized_path`, if given.

        An `arena` takes address space in advance, of which a confined process has little.

        Raises:
            GraphRefused: onnxruntime does not load it.
            MemoryError: it needs more memory than there is.
        """
        # Imported where it runs alone: the service's own processes name choices and load nothing.
        import onnxruntime  # pyright: ignore[reportMissingTypeStubs]

        # The library has no types.
        runtime: Any = onnxruntime
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.enable_cpu_mem_arena = options.enable_mem_pattern = arena
        options.graph_optimization_level = runtime.GraphOptimizationLevel.__members__[level]
        if optimized_path is not None:
            options.optimized_model_filepath = str(optimized_path)
        try:
            self._session: Any = runtime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        # Its errors have no common root but this one.
        except Exception as error:
            raise _refusal("does not load the graph", error) from error
        self.outputs: tuple[str, ...] = tuple(one.name for one in self._session.get_outputs())

    def run(self, feed: Feed, outputs: Sequence[str] | None = None) -> dict[str, AnyArray]:
        """The outputs of these names (None: all), in order.

        Raises:
            GraphRefused: onnxruntime does not run the graph on this feed.
            MemoryError: it needs more memory than there is.
        """
        names = list(self.outputs if outputs is None else outputs)
        if not names:
            return {}
        try:
            found: list[AnyArray] = self._session.run(names, dict(feed))
        except Exception as error:
            shapes = {name: list(value.shape) for name, value in feed.items()}
            raise _refusal(f"does not run the graph on {shapes}", error) from error
        return dict(zip(names, found, strict=True))


def _refusal(what: str, error: Exception) -> GraphRefused | MemoryError:
    message = str(error)
    if isinstance(error, MemoryError) or any(words in message for words in _OUT_OF_MEMORY):
        return MemoryError(message)
    shown = " ".join(message.split())
    if len(shown) > _LONGEST_MESSAGE:
        shown = f"{shown[:_LONGEST_MESSAGE]}..."
    return GraphRefused(f"onnxruntime {what}: {shown}")
