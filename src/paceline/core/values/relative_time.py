"""A part of a scope's state that holds points in time which move along when the clock is set back."""

from typing import ClassVar

import msgspec


class Timed(msgspec.Struct):
    """`relative_times` names the fields that mean "so long from now" rather than a point on the calendar."""

    relative_times: ClassVar[tuple[str, ...]] = ()

    def shift(self, seconds: float) -> None:
        for name in self.relative_times:
            at = getattr(self, name)
            if at is not None:
                setattr(self, name, at - seconds)
