"""Structs with fields in common, and with points in time that move along when the clock is set back."""

from typing import Any, ClassVar

import msgspec


def fields_of(kind: type[msgspec.Struct], *values: object) -> dict[str, Any]:
    """Return the fields of `kind` that the values have. Where several have one, the last value counts."""
    return {name: getattr(value, name) for value in values for name in kind.__struct_fields__ if hasattr(value, name)}


class RelativeTimes(msgspec.Struct):
    """A part of a scope's state with times that mean "so long from now".

    `relative_times` names those fields. All other times are points on the calendar and stay.
    """

    relative_times: ClassVar[tuple[str, ...]] = ()

    def shift(self, seconds: float) -> None:
        """Keep what is left of every relative wait after the clock was set back by `seconds`."""
        for name in self.relative_times:
            at = getattr(self, name)
            if at is not None:
                setattr(self, name, at - seconds)
