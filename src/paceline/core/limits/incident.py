"""What is remembered of incidents: one capacity problem at the provider lowers the limit at most once."""

from typing import ClassVar

from paceline.core.values.relative_time import RelativeTimes


class Incidents(RelativeTimes):
    """Sequence numbers of the last incidents, and the end of the pause that the last one brought.

    Refusals that are about a rate or the spacing of starts are numbered apart, as `last_paced`.
    `was_step` is set while the last one has changed a limit or a rate, and no slow start has followed yet.
    `unanswered` is how long was waited after the last one, until one that was let in after it goes well.
    """

    relative_times: ClassVar[tuple[str, ...]] = ("until",)

    last: int = -1
    last_paced: int = -1
    until: float | None = None
    was_step: bool = False
    unanswered: float | None = None

    def waited_too_little(self, usual: float, now: float) -> bool:
        """Return whether a refusal now follows the last one at once, after a wait shorter than the usual one.

        Then the provider's penalty lasts longer than it stated.
        """
        if self.unanswered is None or self.until is None:
            return False
        return self.unanswered < usual and now <= self.until + usual
