"""`units`: the fields of the contract, filters, and harmless text."""

from tests.cli.conftest import Place, park

UNIT_FIELDS = {
    "id", "campaign", "state", "attempts", "tries", "parks", "resume_at", "reason", "account", "session_id",
    "started_at", "ended_at", "exit_code",
}  # fmt: skip


def test_a_unit_has_exactly_the_fields_of_the_contract(place: Place) -> None:
    place.give("run", place.plan("true", "a"))

    (unit,) = place.ask("units", "docs")["units"]

    assert set(unit) == UNIT_FIELDS
    assert (unit["id"], unit["state"], unit["account"], unit["exit_code"]) == ("docs/a", "done", None, 0)


def test_units_are_chosen_by_state_and_number(place: Place) -> None:
    place.give("add", place.plan("true", "a", "b", "c"))
    park()

    def ids(*options: str) -> list[str]:
        return [unit["id"] for unit in place.ask("units", "docs", *options)["units"]]

    assert ids("--state", "parked") == ["docs/a"]
    assert ids("--state", "waiting") == ["docs/b", "docs/c"]
    assert ids("--state", "todo", "--limit", "2") == ["docs/a", "docs/b"]
    assert "2 of 3 units" in place.give("units", "docs", "--limit", 2).stdout


def test_hostile_text_in_a_reason_cannot_steer_the_terminal(place: Place) -> None:
    place.give("run", place.plan(r"printf '\033]0;owned\007\033[2Jbad'; exit 1", "a", head="max_attempts = 1"), code=1)

    for command in (["units", "docs"], ["why", "a"], ["events"], ["list"]):
        shown = place.give(*command).stdout
        assert "\x1b" not in shown
        assert "\x07" not in shown
