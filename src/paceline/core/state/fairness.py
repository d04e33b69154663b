"""Shares between groups: no credit is hoarded in quiet times or behind a closed gate."""

from paceline.core.state.ledger import Books
from paceline.core.state.queue import Group, foremost_watcher
from paceline.core.state.scope import ScopeState


def lift_newcomer(books: Books, group: Group, refusing: ScopeState) -> None:
    """A group that had nothing to run comes back at the current virtual time: no hoarded credit.

    That is the time of those it now waits beside, else of those who wait elsewhere: it may meet them next.
    Where nobody waits at all, what was used before is past: it starts level with the largest. Groups that
    never have to wait set no time: what they leave unused is nobody's credit, what they use nobody's debt.
    """
    rivals = {lane.group for lane in refusing.run_lanes}
    rivals.update(other for other in tuple(refusing.watchers) if foremost_watcher(refusing, other) is not None)
    rivals.discard(group)
    others = [other for other in books.groups.values() if other is not group]
    waiting = list(rivals) or [other for other in others if other.waiting]
    if waiting:
        _lift(books, [group], min(_values(books, waiting)))
    elif others:
        _lift(books, [group], max(_values(books, others)))


def lift_blocked(books: Books, scope: ScopeState) -> None:
    """The same for all groups that a gate or limit of the scope kept out; they keep their distances."""
    blocked = [group for group in tuple(scope.watchers) if foremost_watcher(scope, group) is not None]
    others = [group for group in books.groups.values() if group not in blocked]
    served = [group for group in others if group.waiting] or [group for group in others if group.live]
    if blocked and served:
        _lift(books, blocked, min(_values(books, served)))


def _lift(books: Books, groups: list[Group], value: float) -> None:
    behind = value - min(_values(books, groups))
    if behind > 0:
        for group in groups:
            group.accrued += behind * group.weight


def _values(books: Books, groups: list[Group]) -> list[float]:
    mean = books.mean_slot
    return [group.value(mean, books.now) for group in groups]
