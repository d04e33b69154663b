"""The transaction of a store in memory: what was changed in a block is changed back if the block raises."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class UndoLog:
    """The way back from every change since the outermost block began. Outside of a block nothing is kept."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] | None = None

    @property
    def is_active(self) -> bool:
        return self._steps is not None

    def note(self, step: Callable[[], object]) -> None:
        """Keep how a change is undone."""
        if self._steps is not None:
            self._steps.append(step)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Undo all changes of the block, the last one first, if it raises. A block in a block belongs to it."""
        if self._steps is not None:
            yield
            return
        self._steps = []
        try:
            yield
        except BaseException:
            steps, self._steps = self._steps, None  # undoing is not noted
            for step in reversed(steps):
                step()
            raise
        finally:
            self._steps = None

    def check(self) -> None:
        """Do nothing: memory cannot be damaged."""

    def close(self) -> None:
        """Do nothing: there is no file."""
