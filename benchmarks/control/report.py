"""The results as a table and as plots: useful work against 429s, drawn as SVG without a library."""

import math
from pathlib import Path
from statistics import mean

import msgspec

from benchmarks.control.families import UNSEEN
from benchmarks.control.run import ORACLE, Figures, Task

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
OURS = "paceline"
COLUMNS = (
    "family",
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
    """Write the summary of our policy on every family, the frontier where it misses a target, and all measures."""
    lines = [*_summary(cells), "", *_frontiers(cells), ""]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    lines += [_row(days) for days in _grouped(cells).values()]
    path.write_text("\n".join(lines) + "\n")


def _grouped(cells: list[Cell]) -> dict[tuple[str, str, str, bool], list[Cell]]:
    groups: dict[tuple[str, str, str, bool], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.family, cell.scenario, cell.policy, cell.informed), []).append(cell)
    return groups


def family_name(family: str) -> str:
    return f"{family} (never tuned on)" if family == UNSEEN else family


def _summary(cells: list[Cell]) -> list[str]:
    """Return our useful work and 429s by family and scenario. A number that misses its target is bold."""
    lines = ["| family | scenario | days | blind | target | informed | target |", "|---|---|---|---|---|---|---|"]
    groups = _grouped(cells)
    for family, scenario in dict.fromkeys((cell.family, cell.scenario) for cell in cells):
        columns: list[str] = []
        for informed, bar in zip((False, True), BARS[scenario], strict=True):
            days = groups.get((family, scenario, OURS, informed), [])
            columns += [_point(days, bar) if days else "", f"{bar[0]:g} / {bar[1]:g}"]
        count = len({cell.seed for cell in cells if (cell.family, cell.scenario) == (family, scenario)})
        lines.append(f"| {family_name(family)} | {scenario} | {count} | " + " | ".join(columns) + " |")
    return lines


def _means(days: list[Cell]) -> tuple[float, float]:
    return 100 * mean(day.share for day in days), mean(day.figures.refused_per_1000 for day in days)


def _point(days: list[Cell], bar: tuple[float, float]) -> str:
    share, refused = _means(days)
    work = f"{share:.1f}" if share >= bar[0] else f"**{share:.1f}**"
    return f"{work} / " + (f"{refused:.1f}" if refused <= bar[1] else f"**{refused:.1f}**")


def _frontiers(cells: list[Cell]) -> list[str]:
    """Return the policies that no other one beats in both numbers, wherever ours misses a target."""
    lines = ["| family | scenario | kind | frontier: work % / 429s per 1,000 runs |", "|---|---|---|---|"]
    groups = _grouped(cells)
    for (family, scenario, policy, informed), days in groups.items():
        share, refused = _means(days)
        bar = BARS[scenario][informed]
        if policy != OURS or (share >= bar[0] and refused <= bar[1]):
            continue
        points = {
            name: _means(found)
            for (its_family, its_scenario, name, its_kind), found in groups.items()
            if (its_family, its_scenario, its_kind) == (family, scenario, informed) and name != ORACLE
        }
        best = {
            name: point
            for name, point in points.items()
            if not any(o[0] >= point[0] and o[1] <= point[1] and o != point for o in points.values())
        }
        shown = "; ".join(f"{name} {work:.1f} / {count:,.1f}" for name, (work, count) in best.items())
        lines.append(f"| {family_name(family)} | {scenario} | {'informed' if informed else 'blind'} | {shown} |")
    return lines


def _row(days: list[Cell]) -> str:
    first, figures = days[0], [day.figures for day in days]
    name = f"{first.policy}, informed" if first.informed else first.policy
    waits = ", ".join(
        f"{mean(f.waits[p][0] for f in figures):,.0f} / {mean(f.waits[p][1] for f in figures):,.0f}"
        for p in (min(figures[0].waits), max(figures[0].waits))
    )
    cells = [
        family_name(first.family),
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
    """Draw one plot per family and scenario: up is more work, left is fewer refusals. Corners are targets."""
    for family, scenario in dict.fromkeys((cell.family, cell.scenario) for cell in cells):
        same = [cell for cell in cells if (cell.family, cell.scenario) == (family, scenario)]
        (folder / f"{family}-{scenario}.svg").write_text(_plot(family, scenario, same))


def _plot(family: str, scenario: str, cells: list[Cell]) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="14" font-size="13">{family_name(family)}, {scenario}:',
        "useful work in % of the oracle against 429s per 1,000 runs</text>",
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
