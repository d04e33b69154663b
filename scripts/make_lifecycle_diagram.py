#!/usr/bin/env python3
"""Writes the diagram of a unit's life cycle into docs/units.md, from the transition table of the core.

python scripts/make_lifecycle_diagram.py
"""

from pathlib import Path

from paceline.core.unit_lifecycle import STEPS

PAGE = Path(__file__).parents[1] / "docs" / "units.md"
BEGIN = "<!-- begin: made by scripts/make_lifecycle_diagram.py -->\n"
END = "<!-- end -->\n"
FIRST = "todo"


def diagram() -> str:
    """Return the transition table as a Mermaid state diagram. States without a way out are final."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {FIRST}"]
    lines += [f"    {before} --> {after}: {step}" for (before, step), after in STEPS.items()]
    ways_out = {before for before, _ in STEPS}
    lines += [f"    {state} --> [*]" for state in dict.fromkeys(STEPS.values()) if state not in ways_out]
    return "\n".join([*lines, "```"]) + "\n"


def with_diagram(page: str) -> str:
    """Return the page with the current diagram between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + diagram() + END + after


if __name__ == "__main__":
    PAGE.write_text(with_diagram(PAGE.read_text("utf-8")), encoding="utf-8")
    print(f"wrote {PAGE.name}")
