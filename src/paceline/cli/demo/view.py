"""The live screen of the demo, readable at 80 x 24. Reads only, never acts."""

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from paceline.cli.demo.progress import CampaignProgress, DemoProgress, NewsLine, Tone, UnitPhase, UnitProgress
from paceline.cli.demo.scenario import SCOPE, Demo
from paceline.core import ScopeStatus, WindowStatus

WIDEST = 100
BAR_CELLS = 24
SESSION_COLUMNS = 2
OTHER_ROWS = 19
"""Rows of everything except the news, with the row of the cursor."""
FEWEST_LINES, MOST_LINES = 5, 10
GLYPHS: dict[UnitPhase, tuple[str, str]] = {
    "done": ("✓", "green"),
    "running": ("●", "bold green"),
    "parked": ("◌", "bold yellow"),
    "waiting": ("○", "dim"),
    "stuck": ("✗", "bold red"),
}
TONES: dict[Tone, str] = {"good": "green", "bad": "red", "news": "cyan"}


def screen(demo: Demo, now: float, width: int, height: int) -> RenderableType:
    """Return the whole screen as of `now`."""
    status, progress = demo.refresh(), demo.progress
    running, parked = progress.in_state("running", now), progress.in_state("parked", now)
    rows = -(-demo.plan.sessions // SESSION_COLUMNS)
    shown = max(FEWEST_LINES, min(MOST_LINES, height - OTHER_ROWS))
    parts = (
        (_account(status, progress, len(running), now), f"Paceline demo · {now - progress.started_at:.0f} s", "cyan"),
        (_campaigns(progress.campaigns, now), "units · ✓ done  ● running  ◌ parked  ○ waiting", "blue"),
        (_sessions(running, parked, now, rows), _sessions_title(running, parked), "yellow" if parked else "green"),
        (_lines(list(progress.lines)[-shown:], shown), "what happened", "magenta"),
    )
    return Group(
        Text(demo.url, style="underline cyan", overflow="fold"),
        *(
            Panel(body, title=title, title_align="left", border_style=style, padding=(0, 1), width=min(width, WIDEST))
            for body, title, style in parts
        ),
    )


# -- the account ---------------------------------------------------------------------------------


def _account(status: ScopeStatus, progress: DemoProgress, live: int, now: float) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_row(SCOPE, _slots(status, live))
    table.add_row("5h window", _window(status.window, progress, now))
    table.add_row("new sessions", starts(status, progress, now))
    return table


def _slots(status: ScopeStatus, live: int) -> Text:
    cap = status.limit or live
    text = Text("●" * live, style="bold green")
    text.append("○" * max(0, cap - live), style="dim")
    text.append(f"  {live} of {cap} sessions", style="bold")
    if status.configured != status.limit:
        text.append(f"  ({status.configured} before the 429)", style="dim")
    return text


def _window(window: WindowStatus | None, progress: DemoProgress, now: float) -> Text:
    if window is None:
        return Text("nothing known yet", style="dim")
    used = min(1.0, window.used_ratio or 0.0) if progress.window == "open" else 1.0
    filled = round(used * BAR_CELLS)
    text = Text("█" * filled, style="red" if used >= 0.9 else "green")
    text.append("░" * (BAR_CELLS - filled), style="dim")
    match progress.window:
        case "closed":
            return text.append(f"  spent, opens again in {max(0.0, (window.probe_at or now) - now):.0f} s", "bold red")
        case "probed":
            return text.append("  a canary is trying it", "bold cyan")
    return text.append(f"  {used:.0%} used" + ", reopened in a wave" * (window.state == "wave"), "dim")


def starts(status: ScopeStatus, progress: DemoProgress, now: float) -> Text:
    """Return whether new sessions may start, and what prevents it."""
    match progress.window:
        case "closed":
            return Text("none until the window opens", style="bold red")
        case "probed":
            return Text("the canary only", style="bold cyan")
    if status.paused_until is not None and status.paused_until > now:
        return Text(f"paused for {status.paused_until - now:.1f} s after a 429", style="bold red")
    return Text("by priority, as slots are released", style="green")


# -- the units -----------------------------------------------------------------------------------


def _campaigns(campaigns: list[CampaignProgress], now: float) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for campaign in campaigns:
        cells = Text()
        for state in sorted((unit.state_at(now) for unit in campaign.units.values()), key=list(GLYPHS).index):
            glyph, style = GLYPHS[state]
            cells.append(glyph + " ", style=style)
        priority = Text(f"priority {campaign.priority}", style="dim")
        table.add_row(
            Text(campaign.name, style="bold"), priority, cells, f"{campaign.done:>2} of {len(campaign.units)} done"
        )
    return table


def _sessions_title(running: list[UnitProgress], parked: list[UnitProgress]) -> str:
    return f"sessions · {len(running)} running" + (f", {len(parked)} parked" if parked else "")


def _sessions(running: list[UnitProgress], parked: list[UnitProgress], now: float, rows: int) -> RenderableType:
    """Return a cell for each session. Free cells show parked units with the time that is left."""
    cells = [_session(unit, now) for unit in running] + [_parked(unit, now) for unit in parked]
    cells = cells[: rows * SESSION_COLUMNS]
    cells += [Text("")] * (rows * SESSION_COLUMNS - len(cells))
    table = Table.grid(padding=(0, 1), expand=True)
    for _ in range(SESSION_COLUMNS):
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for first in range(rows):
        table.add_row(*cells[first::rows])
    return table


def _session(unit: UnitProgress, now: float) -> Text:
    text = Text(f"● {unit.id:<16}", style="bold green")
    text.append(f"{now - unit.since:4.1f} s", style="default")
    if unit.goes_on:
        text.append("  resumed", style="cyan")
    return text


def _parked(unit: UnitProgress, now: float) -> Text:
    text = Text(f"◌ {unit.id:<16}", style="yellow")
    return text.append(f"resumes in {(unit.resume_at or now) - now:.0f} s", style="bold yellow")


def state_line(demo: Demo, now: float) -> str:
    """Return the state of the demo in one line."""
    status, progress = demo.refresh(), demo.progress
    new_sessions = starts(status, progress, now).plain
    return f"{now - progress.started_at:5.1f} s  {_counts(progress, now)}; new sessions: {new_sessions}"


def _counts(progress: DemoProgress, now: float) -> str:
    counts = [f"{progress.done}/{progress.total} done"]
    for state in ("running", "parked", "waiting"):
        units = progress.in_state(state, now)
        shares = " + ".join(
            f"{sum(unit.id.startswith(campaign.name + '/') for unit in units)} {campaign.name}"
            for campaign in progress.campaigns
        )
        counts.append(f"{len(units)} {state}" + (f" ({shares})" if state == "running" and units else ""))
    return ", ".join(counts)


# -- what happened -------------------------------------------------------------------------------


def _lines(lines: list[NewsLine], rows: int) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", justify="right", min_width=6)
    for line in lines:
        table.add_row(f"{line.at:.1f} s", Text(line.text, style=TONES[line.tone], no_wrap=True, overflow="ellipsis"))
    return Group(
        table, *(Text("") for _ in range(rows - len(lines)))
    )  # always the same height, so that the screen does not jump
