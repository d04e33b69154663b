"""`limit`: a live limit is kept until it is reset."""

from tests.cli.conftest import Place


def test_a_limit_set_live_is_kept_by_the_next_engine_and_can_be_given_back(place: Place) -> None:
    place.give("pool", 2)
    place.give("limit", "campaign:docs", 1, code=2)
    place.give("run", place.plan("true", "a"))

    kept = {row["scope"]: row for row in place.ask("limits")["limits"]}
    place.give("limit", "sessions", "default")
    given_back = {row["scope"]: row for row in place.ask("limits")["limits"]}

    assert (kept["sessions"]["effective"], kept["sessions"]["source"]) == (2, "live")
    assert (given_back["sessions"]["effective"], given_back["sessions"]["source"]) == (4, "shipped")


def test_a_campaigns_own_limit_is_kept_with_the_campaign(place: Place) -> None:
    place.give("add", place.plan("true", "a"))

    place.give("limit", "campaign:docs", 3)

    assert place.ask("list")["campaigns"][0]["max_sessions"] == 3
