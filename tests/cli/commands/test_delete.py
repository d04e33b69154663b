"""`delete`: a campaign is gone, and its name is free."""

import time

from tests.cli.conftest import Place
from tests.cli.terminal import on_terminal

from paceline.cli.wiring import open_home


def test_a_deleted_campaign_is_gone_and_its_name_is_free(place: Place) -> None:
    plan = place.plan("true", "a", "b")
    place.give("add", plan)
    place.give("cancel", "docs")
    refused = place.give("add", plan, code=2)

    unsure = place.give("delete", "docs", code=2)
    answer = place.ask("delete", "docs", "--yes")

    assert "delete it to use its name again" in refused.stderr
    assert "give --yes if you are sure" in unsure.stderr
    assert answer == {"ok": True, "campaign": "docs", "engine": "stopped"}
    assert place.ask("list") == {"campaigns": []}
    assert place.ask("add", plan)["added"] == 2


def test_a_campaign_with_a_running_unit_is_not_deleted(place: Place) -> None:
    place.give("add", place.plan("true", "a"))
    with open_home() as home:
        home.store.claim_units("docs", "", 1, attempt_ids=["x"], lease_until=time.time() + 60, now=time.time())

    refused = place.give("delete", "docs", "--yes", code=2)

    assert "units of 'docs' are running: cancel it first" in refused.stderr
    assert len(place.ask("list")["campaigns"]) == 1


def test_deleting_asks_first(place: Place) -> None:
    place.give("add", place.plan("true", "a"))

    codes = []
    for answer in (b"n\r", b"y\r"):
        with on_terminal(place, "delete", "docs") as terminal:
            terminal.wait_for(lambda text: "Delete docs with all its units" in text)
            terminal.type(answer)
            codes.append(terminal.wait_end())
        codes.append(len(place.ask("list")["campaigns"]))

    assert codes == [1, 1, 0, 0]
