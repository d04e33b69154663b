"""`preview`: what would start now. It starts and stores nothing."""

from tests.cli.conftest import Place, park


def test_a_preview_starts_and_stores_nothing(place: Place) -> None:
    plan = place.plan("echo {id} >> ends", *"abcdef", head="max_sessions = 2")

    preview = place.ask("preview", plan)

    assert preview["starts"] == ["docs/a", "docs/b"]
    assert preview["waiting"] == 4
    assert preview["waits"][""]["detail"] == "campaign:docs at its limit (2/2)"
    assert place.ask("list")["campaigns"] == []
    assert not (place.folder / "ends").exists()


def test_a_preview_counts_what_runs_and_what_is_done(place: Place) -> None:
    plan = place.plan("echo {id}", "a", "b", "c", "d")
    place.give("add", plan)
    park()

    preview = place.ask("preview", plan)
    said = place.give("preview", plan).stdout

    assert (preview["parked"], preview["starts"]) == (1, ["docs/b", "docs/c", "docs/d"])
    assert "1 parked already" in said


def test_a_preview_of_a_plan_that_was_never_added_goes_flat_out_towards_its_deadline(place: Place) -> None:
    preview = place.ask("preview", place.plan("true", *"abc", head="deadline = 2099-01-01T00:00:00Z"))
    assert (preview["units"], len(preview["starts"])) == (3, 3)


def test_a_preview_keeps_to_the_pace_of_a_deadline(place: Place) -> None:
    place.give("run", place.plan("true", "a", "b"))

    preview = place.ask("preview", place.plan("true", *"abcdef", head="deadline = 2099-01-01T00:00:00Z"))

    assert preview["starts"] == ["docs/c"]
    waits = preview["waits"][""]
    assert (waits["reason"], waits["scope"]) == ("pacing", "campaign:docs")
    assert waits["detail"].endswith("and 1 session at a time makes it")


def test_a_preview_without_any_limit_starts_everything(place: Place) -> None:
    place.write("paceline.toml", '[pool]\nsessions = "none"')

    assert len(place.ask("preview", place.plan("true", *(f"u{n}" for n in range(40))))["starts"]) == 40


def test_a_preview_of_a_paused_campaign_starts_nothing(place: Place) -> None:
    plan = place.plan("true", "a")
    place.give("add", plan)
    place.give("pause", "docs")

    assert place.ask("preview", plan)["starts"] == []
