"""Units that stopped for the same reason are found together, and only they are tried again."""

from paceline.engine import commands
from paceline.engine.commands import units_like
from paceline.store import Campaign, SqliteStore, Unit, UnitSpec

NOW = 1000.0


def stopped_fleet() -> tuple[SqliteStore, Unit]:
    store = SqliteStore.in_memory()
    units = [UnitSpec(id=name) for name in ("a", "b", "c", "d")]
    store.add_campaign(Campaign(name="docs"), units, update=False, now=NOW)
    store.move_units(["docs/a"], "held", "denied 2 tools", now=NOW)
    store.move_units(["docs/b"], "held", "denied 17 tools", now=NOW)
    store.move_units(["docs/c"], "held", "paused by a person", now=NOW)
    unit = store.unit("docs/a")
    assert unit is not None
    return store, unit


def test_only_units_with_the_same_reason_are_tried_again() -> None:
    store, unit = stopped_fleet()

    moved = commands.retry_units_like(store, unit, now=NOW)

    states = {each.id: each.state for each in store.units().units}
    assert (moved, states) == (2, {"docs/a": "todo", "docs/b": "todo", "docs/c": "held", "docs/d": "todo"})


def test_a_unit_that_has_not_stopped_is_like_no_other() -> None:
    store, _ = stopped_fleet()
    waiting = store.unit("docs/d")
    assert waiting is not None

    assert units_like(store, waiting) == []
    assert commands.retry_units_like(store, waiting, now=NOW) == 0
