"""The page on units shows the life cycle as the code has it."""

from scripts.make_lifecycle_diagram import PAGE, diagram, with_diagram

from paceline.core.unit_lifecycle import (
    FAILED_SECONDS,
    REFUSED_SECONDS,
    STEPS,
    TRY_LATER_SECONDS,
    Policy,
)


def test_the_diagram_on_the_page_is_the_one_made_from_the_table() -> None:
    page = PAGE.read_text("utf-8")

    assert diagram() in page
    assert with_diagram(page) == page


def test_the_diagram_has_an_arrow_for_every_step() -> None:
    arrows = [line.strip() for line in diagram().splitlines() if "-->" in line and "[*]" not in line]

    assert arrows == [f"{before} --> {after}: {step}" for (before, step), after in STEPS.items()]


def test_the_page_names_the_bounds_and_pauses_of_the_code() -> None:
    """Whoever changes one of them must change the page."""
    assert Policy() == Policy(max_attempts=3, max_windows_spent=5, max_refusals=50, max_losses=10)
    assert FAILED_SECONDS == (5.0, 30.0, 120.0, 600.0)
    assert REFUSED_SECONDS == (30.0, 60.0, 120.0, 300.0, 600.0)
    assert TRY_LATER_SECONDS == (60.0, 120.0, 300.0, 600.0)
