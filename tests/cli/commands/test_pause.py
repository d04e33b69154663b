"""`pause` and `resume`."""

from tests.cli.conftest import Place


def test_pause_and_resume_all(place: Place) -> None:
    place.give("add", place.plan("true", "a"))
    place.give("add", place.plan("true", "x", name="more"))

    assert place.ask("pause", "--all")["campaigns"] == ["docs", "more"]
    assert place.ask("resume", "docs")["campaigns"] == ["docs"]
    assert place.ask("resume", "--all")["campaigns"] == ["more"]
