"""`list`: campaigns and their counts."""

from tests.cli.conftest import Place, park


def test_an_empty_home_tells_where_to_begin(place: Place) -> None:
    assert "paceline run PLAN" in place.give("list").stdout
    assert place.ask("list") == {"campaigns": []}
    assert place.ask("status")["engine"]["state"] == "stopped"


def test_the_list_counts_units_by_what_they_do(place: Place) -> None:
    place.give("add", place.plan("true", "a", "b", "c"))
    park()

    (campaign,) = place.ask("list")["campaigns"]
    row = place.give("list").stdout.splitlines()[1].split()

    assert (campaign["units"]["todo"], campaign["units"]["parked"]) == (3, 1)
    assert row == ["docs", "active", "0", "command", "0/3", "0", "2", "1", "0"]
