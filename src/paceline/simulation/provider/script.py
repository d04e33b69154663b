"""The script: answers for the next requests, whatever the capacity is. Its `Step`s are used in order."""

from collections import deque
from fnmatch import fnmatchcase

import msgspec

from paceline.errors import InvalidInput
from paceline.simulation.provider.errors import NAMES
from paceline.simulation.provider.scenario import Endpoint, Step

OK = "ok"


class Script:
    """A queue of steps. A request takes the first one that matches it."""

    def __init__(self, steps: tuple[Step, ...] = ()) -> None:
        self._steps: deque[Step] = deque()
        for step in steps:
            self.add(step)

    def add(self, step: Step) -> None:
        if step.error != OK and step.error not in NAMES:
            raise InvalidInput(f"no error is called {step.error!r}; there are: ok, {', '.join(sorted(NAMES))}")
        if step.times is None or step.times > 0:
            self._steps.append(step)

    def take(
        self, endpoint: Endpoint, model: str, key: str, answers: int = 0, prompts: tuple[str, ...] = ()
    ) -> Step | None:
        for index, step in enumerate(self._steps):
            is_meant = fnmatchcase(model, step.models) and fnmatchcase(key, step.keys) and answers >= step.answers
            if step.endpoint == endpoint and is_meant and _is_about(prompts, step.prompts):
                self._use(index, step)
                return step
        return None

    def clear(self) -> None:
        self._steps.clear()

    def _use(self, index: int, step: Step) -> None:
        if step.times is None:
            return
        if step.times == 1:
            del self._steps[index]
        else:
            self._steps[index] = msgspec.structs.replace(step, times=step.times - 1)


def _is_about(prompts: tuple[str, ...], pattern: str) -> bool:
    return pattern == "*" or any(fnmatchcase(prompt, pattern) for prompt in prompts)
