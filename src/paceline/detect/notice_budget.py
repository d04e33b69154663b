"""The bound on notices that are read closely: a flood of them costs no more than a few.

Here: which notices are read now, which later, and which never. Never here: what a notice means.
"""

from collections import OrderedDict

from paceline.detect.parsing.json_objects import Event

FREE_NOTICES = 128
"""Notices that are read whatever they are: more than any real CLI prints about its limits at a time."""
FREE_PER_SECOND = 8.0
"""Notices that become free with time, so that a long run is read closely to its end."""
FREE_AT_A_TIME = 32
"""Of these, so many that are read of one piece of output: each may take a millisecond, and other sessions wait."""
PER_BLOCK = 4
"""Further notices that are read in each block of output. Close reading is a thousand times slower than the rest."""
PER_SHAPE = 2
"""Of these, so many that differ only in numbers."""
LAST_OF_BLOCK = 2
"""Notices that are kept until the end of their block and read then: the last words about a limit count most."""
_NO_DIGITS = {ord(digit): None for digit in "0123456789"}


class NoticeBudget:
    """Decides which notices of one run are read closely. It keeps the last of those that are not."""

    def __init__(self) -> None:
        self._free = float(FREE_NOTICES)
        self._free_here = FREE_AT_A_TIME
        self._left = PER_BLOCK
        self._shapes: dict[str, int] = {}
        self._kept: OrderedDict[str, str | Event] = OrderedDict()

    @property
    def is_spent(self) -> bool:
        """Whether no further notice of this block is read as it comes."""
        return not self._has_free and not self._left

    @property
    def _has_free(self) -> bool:
        return self._free >= 1 and self._free_here > 0

    def add_time(self, seconds: float) -> None:
        """Free notices for time that has passed."""
        self._free = min(float(FREE_NOTICES), self._free + max(0.0, seconds) * FREE_PER_SECOND)
        if seconds > 0:
            self._free_here = FREE_AT_A_TIME

    def allows(self, notice: str, event: Event | None = None) -> bool:
        """Return whether to read a notice, or the event printed so, now. If not, the last ones of a block are kept."""
        if self._has_free:
            self._free -= 1
            self._free_here -= 1
            return True
        shape = notice.translate(_NO_DIGITS)
        read = self._shapes.get(shape, 0)
        if self._left and read < PER_SHAPE:
            self._left -= 1
            self._shapes[shape] = read + 1
            return True
        self._kept.pop(shape, None)
        self._kept[shape] = notice if event is None else event
        if len(self._kept) > LAST_OF_BLOCK:
            self._kept.popitem(last=False)
        return False

    def end_block(self) -> list[str | Event]:
        """Return the notices and events to read at the end of a block, and begin the next one."""
        kept = list(self._kept.values())
        self._free_here = FREE_AT_A_TIME
        self._left = PER_BLOCK
        self._shapes.clear()
        self._kept.clear()
        return kept
