"""Shares between groups: each gets slot-seconds by its weight, and hoards no credit while it has nothing to run."""

from collections.abc import Collection

LARGEST_EXPONENT = 32
"""Priorities beyond this make no difference: a share of 1 in 4 billion is none, and larger powers overflow a float."""

KEPT_IDLE_GROUPS = 256
"""Groups without work whose use is remembered: more campaigns than anybody alternates between."""


class Group:
    """One party that shares capacity by its weight. `accrued` are slot-seconds up to `accrued_at`."""

    __slots__ = ("accrued", "accrued_at", "index", "live", "name", "waiting", "weight")

    def __init__(self, name: str | int, index: int, weight: float, now: float) -> None:
        self.name = name
        self.index = index
        self.weight = weight
        self.accrued = 0.0
        self.accrued_at = now
        self.live = 0
        self.waiting = 0

    def value(self, mean_slot: float, now: float) -> float:
        """Return what the group has used, and is about to use, for its weight. The smallest value is next."""
        return (self.accrued + self.live * (now - self.accrued_at + mean_slot)) / self.weight

    def used(self, now: float) -> float:
        """Return what the group has used up to now for its weight."""
        return self.value(0.0, now)

    def accrue(self, now: float) -> None:
        self.accrued += self.live * (now - self.accrued_at)
        self.accrued_at = now

    def reweigh(self, weight: float, now: float) -> None:
        """Apply a new priority from now on. Earlier use becomes neither a debt nor a credit."""
        self.accrue(now)
        self.accrued *= weight / self.weight
        self.weight = weight


class FairShares:
    """All groups, and how long slots are held on average."""

    def __init__(self) -> None:
        self.groups: dict[str | int, Group] = {}
        self.finished_seconds = 0.0
        self.finished_slots = 0
        self._group_count = 0

    def group(self, name: str | int, weight: float, now: float) -> Group:
        """Return the group of a campaign, of a client's key, or of a priority level for bare tickets."""
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = Group(name, self._group_count, weight, now)
            self._group_count += 1
        return group

    def keep_only(self, busy: Collection[Group]) -> None:
        """Forget all other groups, but for those that had a slot last: what they used is not forgiven by a pause."""
        idle = [group for group in self.groups.values() if group not in busy and group.accrued > 0]
        kept = {*busy, *sorted(idle, key=lambda group: group.accrued_at)[-KEPT_IDLE_GROUPS:]}
        self.groups = {name: group for name, group in self.groups.items() if group in kept}

    @property
    def mean_slot(self) -> float:
        """The mean length of all slots so far; a second before the first release."""
        return self.finished_seconds / self.finished_slots if self.finished_slots else 1.0

    def lift_newcomer(self, group: Group, rivals: Collection[Group], now: float) -> None:
        """Bring a group that had nothing to run to the current virtual time: no hoarded credit.

        That is the time of the `rivals` it now waits beside, else of those who wait elsewhere: it may meet them
        next. Where nobody waits at all, what was used before is past: it starts level with the largest. Groups that
        never have to wait set no time: what they leave unused is nobody's credit, what they use nobody's debt.
        """
        others = [other for other in self.groups.values() if other is not group]
        beside = [rival for rival in rivals if rival is not group]
        waiting = beside or [other for other in others if other.waiting]
        if waiting:
            self._lift([group], min(other.used(now) for other in waiting), now)
        elif others:
            self._lift([group], max(other.used(now) for other in others), now)

    def lift_blocked(self, blocked: Collection[Group], now: float) -> None:
        """Bring groups that a gate or limit kept out to the virtual time of those who were served.

        They keep their distances to each other.
        """
        others = [group for group in self.groups.values() if group not in blocked]
        served = [group for group in others if group.waiting] or [group for group in others if group.live]
        if blocked and served:
            self._lift(blocked, min(group.used(now) for group in served), now)

    def shift(self, seconds: float) -> None:
        for group in self.groups.values():
            group.accrued_at -= seconds

    def _lift(self, groups: Collection[Group], level: float, now: float) -> None:
        """Lift the groups to a level of use, and never to what others are only about to use.

        A slot may end sooner than the mean: then nobody has used what the lifted groups would have to wait for.
        """
        behind = level - min(group.used(now) for group in groups)
        if behind > 0:
            for group in groups:
                group.accrued += behind * group.weight


def weight_of(priority: int) -> float:
    """Return the weight of a priority: one level up is twice the share."""
    return float(2.0 ** max(-LARGEST_EXPONENT, min(priority, LARGEST_EXPONENT)))
