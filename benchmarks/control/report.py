"""The results as a table and as plots: useful work against 429s, drawn as SVG without a library."""

import math
from pathlib import Path
from statistics import mean

import msgspec

from benchmarks.control.run import Figures, Task

BARS = {
    "steady": ((95.0, 3.0), (99.5, 0.2)),
    "drift": ((83.0, 7.0), (97.5, 1.5)),
    "window": ((99.5, 3.0), (99.9, 1.0)),
    "rates": ((97.0, 60.0), (99.5, 1.0)),
    "models": ((94.0, 4.0), (99.5, 0.5)),
    "late": ((99.0, 12.0), (99.8, 8.0)),
    "everything": ((92.0, 40.0), (98.5, 2.0)),
}
"""The targets: least useful work in % of the oracle, most 429s per 1,000 runs; blind and informed."""
COLUMNS = (
    "scenario",
    "policy",
    "days",
    "work %",
    "429s per 1,000 runs",
    "wasted h",
    "wait p50 / p99 s (lowest, highest priority)",
    "Jain",
    "full after rise, s",
    "full after reopening, s",
)
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 300, 60, 40
FEWEST_REFUSALS = 0.05


class Cell(msgspec.Struct, frozen=True):
    """One day of one policy. `share` is its work divided by the oracle's."""

    family: str
    scenario: str
    seed: int
    policy: str
    informed: bool
    share: float
    figures: Figures

    @property
    def task(self) -> Task:
        return Task(self.family, self.scenario, self.seed, self.policy, self.informed)

    def line(self) -> str:
        kind = "informed" if self.informed else "blind"
        refused = self.figures.refused_per_1000
        day = f"{self.family:8} {self.scenario:11} {self.seed:4}"
        return f"{day} {self.policy:26} {kind:9} {100 * self.share:6.1f} / {refused:.2f}"


def write_table(cells: list[Cell], path: Path) -> None:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for scenario in dict.fromkeys(cell.scenario for cell in cells):
        for policy, informed in dict.fromkeys((c.policy, c.informed) for c in cells if c.scenario == scenario):
            lines.append(_row([c for c in cells if (c.scenario, c.policy, c.informed) == (scenario, policy, informed)]))
    path.write_text("\n".join(lines) + "\n")


def _row(days: list[Cell]) -> str:
    first, figures = days[0], [day.figures for day in days]
    name = f"{first.policy}, informed" if first.informed else first.policy
    waits = ", ".join(
        f"{mean(f.waits[p][0] for f in figures):,.0f} / {mean(f.waits[p][1] for f in figures):,.0f}"
        for p in (min(figures[0].waits), max(figures[0].waits))
    )
    cells = [
        first.scenario,
        name,
        str(len(days)),
        f"{100 * mean(day.share for day in days):.1f}",
        f"{mean(f.refused_per_1000 for f in figures):,.2f}",
        f"{mean(f.wasted_seconds for f in figures) / 3600:,.1f}",
        waits,
        f"{mean(f.jain for f in figures):.3f}",
        _median([f.full_after_rise for f in figures]),
        _median([f.full_after_reopening for f in figures]),
    ]
    return "| " + " | ".join(cells) + " |"


def _median(values: list[float | None]) -> str:
    known = sorted(value for value in values if value is not None)
    return f"{known[len(known) // 2]:,.0f}" if known else ""


def write_plots(cells: list[Cell], folder: Path) -> None:
    """Draw one plot per scenario: up is more work, left is fewer refusals. The targets are drawn as corners."""
    for scenario in dict.fromkeys(cell.scenario for cell in cells):
        (folder / f"{scenario}.svg").write_text(_plot(scenario, [c for c in cells if c.scenario == scenario]))


def _plot(scenario: str, cells: list[Cell]) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="14" font-size="13">{scenario}: useful work in % of the oracle against',
        "429s per 1,000 runs</text>",
    ]
    for power in range(-1, 6):
        x = _x(10.0**power)
        parts.append(f'<line x1="{x:.0f}" y1="24" x2="{x:.0f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.0f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{10.0**power:g}</text>')
    for percent in range(0, 101, 20):
        y = _y(percent)
        parts.append(f'<line x1="{LEFT}" y1="{y:.0f}" x2="{WIDTH - 10}" y2="{y:.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{percent}</text>')
    for (share, refused), colour in zip(BARS[scenario], ("#c60", "#06c"), strict=True):
        x, y = _x(refused), _y(share)
        parts.append(f'<path d="M{LEFT},{y:.0f} H{x:.0f} V24" fill="none" stroke="{colour}" stroke-dasharray="4 3"/>')
    for policy, informed in dict.fromkeys((cell.policy, cell.informed) for cell in cells):
        days = [cell for cell in cells if (cell.policy, cell.informed) == (policy, informed)]
        x = _x(mean(day.figures.refused_per_1000 for day in days))
        y = _y(100 * mean(day.share for day in days))
        colour = ("#06c" if informed else "#c60") if policy == "paceline" else "#777"
        label = f"{policy}, informed" if informed else policy
        side = "end" if x > WIDTH - 150 else "start"
        shift = -7 if side == "end" else 7
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + shift:.0f}" y="{y + 4:.0f}" fill="{colour}" text-anchor="{side}">{label}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(refused: float) -> float:
    span = math.log10(1e5 / FEWEST_REFUSALS)
    return LEFT + (WIDTH - LEFT - 10) * min(1.0, math.log10(max(refused, FEWEST_REFUSALS) / FEWEST_REFUSALS) / span)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 24) * min(105.0, share) / 105.0
