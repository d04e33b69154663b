"""Background jobs without threads, for engines in virtual time: each is done when its result is collected."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from paceline.engine.background_jobs import BackgroundJobs, Job

Value = TypeVar("Value")


class InlineJob(Job[Value]):
    """Work that is done when its result is asked for."""

    def __init__(self, work: Callable[..., Value], arguments: tuple[object, ...]) -> None:
        super().__init__(Future())
        self._work = work
        self._arguments = arguments

    @property
    def is_over(self) -> bool:
        return True

    def result(self) -> Value:
        return self._work(*self._arguments)


class InlineJobs(BackgroundJobs):
    """Starts no threads."""

    def start(self, work: Callable[..., Value], *arguments: object) -> Job[Value]:
        return InlineJob(work, arguments)
