"""How the demo looks while it runs: one screen, readable at 80 x 24. Looks only, never acts."""

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from paceline.cli.demo.progress import Batch, Ledger, Line, Piece, PieceState, Tone
from paceline.cli.demo.scenario import SCOPE, Stage
from paceline.core import ScopeStatus, WindowStatus

WIDEST = 100
BAR_CELLS = 24
SESSION_COLUMNS = 2
OTHER_ROWS = 19
"""All but what happened last, and the line that the cursor is on."""
FEWEST_LINES, MOST_LINES = 5, 10
GLYPHS: dict[PieceState, tuple[str, str]] = {
    "done": ("✓", "green"),
    "running": ("●", "bold green"),
    "parked": ("◌", "bold yellow"),
    "waiting": ("○", "dim"),
    "stuck": ("✗", "bold red"),
}
TONES: dict[Tone, str] = {"good": "green", "bad": "red", "news": "cyan"}


def screen(stage: Stage, now: float, width: int, height: int) -> RenderableType:
    """The whole of it, as it is at `now`."""
    status, ledger = stage.look(), stage.ledger
    running, parked = ledger.in_state("running", now), ledger.in_state("parked", now)
    rows = -(-stage.plan.sessions // SESSION_COLUMNS)
    shown = max(FEWEST_LINES, min(MOST_LINES, height - OTHER_ROWS))
    parts = (
        (_account(status, ledger, len(running), now), f"Paceline demo · {now - ledger.started_at:.0f} s", "cyan"),
        (_batches(ledger.batches, now), "units · ✓ done  ● running  ◌ parked  ○ waiting", "blue"),
        (_sessions(running, parked, now, rows), _sessions_title(running, parked), "yellow" if parked else "green"),
        (_lines(list(ledger.lines)[-shown:], shown), "what happened", "magenta"),
    )
    return Group(
        Text(stage.url, style="underline cyan", no_wrap=True, overflow="ellipsis"),
        *(
            Panel(body, title=title, title_align="left", border_style=style, padding=(0, 1), width=min(width, WIDEST))
            for body, title, style in parts
        ),
    )


# -- the account ---------------------------------------------------------------------------------


def _account(status: ScopeStatus, ledger: Ledger, live: int, now: float) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_row(SCOPE, _places(status, live))
    table.add_row("5h window", _window(status.window, ledger, now))
    table.add_row("new sessions", starts(status, ledger, now))
    return table


def _places(status: ScopeStatus, live: int) -> Text:
    cap = status.limit or live
    text = Text("●" * live, style="bold green")
    text.append("○" * max(0, cap - live), style="dim")
    text.append(f"  {live} of {cap} sessions", style="bold")
    if status.configured != status.limit:
        text.append(f"  ({status.configured} before the 429)", style="dim")
    return text


def _window(window: WindowStatus | None, ledger: Ledger, now: float) -> Text:
    if window is None:
        return Text("nothing known yet", style="dim")
    used = min(1.0, window.used_ratio or 0.0) if ledger.window == "open" else 1.0
    filled = round(used * BAR_CELLS)
    text = Text("█" * filled, style="red" if used >= 0.9 else "green")
    text.append("░" * (BAR_CELLS - filled), style="dim")
    match ledger.window:
        case "closed":
            return text.append(f"  spent, opens again in {max(0.0, (window.probe_at or now) - now):.0f} s", "bold red")
        case "probed":
            return text.append("  a canary is trying it", "bold cyan")
    return text.append(f"  {used:.0%} used" + ", reopened in a wave" * (window.state == "wave"), "dim")


def starts(status: ScopeStatus, ledger: Ledger, now: float) -> Text:
    """Whether a new session may begin, and what keeps it."""
    match ledger.window:
        case "closed":
            return Text("none until the window opens", style="bold red")
        case "probed":
            return Text("the canary only", style="bold cyan")
    if status.paused_until is not None and status.paused_until > now:
        return Text(f"paused for {status.paused_until - now:.1f} s after a 429", style="bold red")
    return Text("by priority, as places free", style="green")


# -- the units -----------------------------------------------------------------------------------


def _batches(batches: list[Batch], now: float) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for batch in batches:
        cells = Text()
        for state in sorted((piece.state_at(now) for piece in batch.pieces.values()), key=list(GLYPHS).index):
            glyph, style = GLYPHS[state]
            cells.append(glyph + " ", style=style)
        priority = Text(f"priority {batch.priority}", style="dim")
        table.add_row(Text(batch.name, style="bold"), priority, cells, f"{batch.done:>2} of {len(batch.pieces)} done")
    return table


def _sessions_title(running: list[Piece], parked: list[Piece]) -> str:
    return f"sessions · {len(running)} running" + (f", {len(parked)} parked" if parked else "")


def _sessions(running: list[Piece], parked: list[Piece], now: float, rows: int) -> RenderableType:
    """Every session has its cell; the free ones show who is parked, with the time that is left."""
    cells = [_session(piece, now) for piece in running] + [_parked(piece, now) for piece in parked]
    cells = cells[: rows * SESSION_COLUMNS]
    cells += [Text("")] * (rows * SESSION_COLUMNS - len(cells))
    table = Table.grid(padding=(0, 1), expand=True)
    for _ in range(SESSION_COLUMNS):
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for first in range(rows):
        table.add_row(*cells[first::rows])
    return table


def _session(piece: Piece, now: float) -> Text:
    text = Text(f"● {piece.id:<16}", style="bold green")
    text.append(f"{now - piece.since:4.1f} s", style="default")
    if piece.goes_on:
        text.append("  resumed", style="cyan")
    return text


def _parked(piece: Piece, now: float) -> Text:
    text = Text(f"◌ {piece.id:<16}", style="yellow")
    return text.append(f"resumes in {(piece.resume_at or now) - now:.0f} s", style="bold yellow")


def state_line(stage: Stage, now: float) -> str:
    """Where things stand, in one line."""
    status, ledger = stage.look(), stage.ledger
    return (
        f"{now - ledger.started_at:5.1f} s  {_counts(ledger, now)}; new sessions: {starts(status, ledger, now).plain}"
    )


def _counts(ledger: Ledger, now: float) -> str:
    counts = [f"{ledger.done}/{ledger.total} done"]
    for state in ("running", "parked", "waiting"):
        pieces = ledger.in_state(state, now)
        shares = " + ".join(
            f"{sum(piece.id.startswith(batch.name + '/') for piece in pieces)} {batch.name}" for batch in ledger.batches
        )
        counts.append(f"{len(pieces)} {state}" + (f" ({shares})" if state == "running" and pieces else ""))
    return ", ".join(counts)


# -- what happened -------------------------------------------------------------------------------


def _lines(lines: list[Line], rows: int) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", justify="right", min_width=6)
    for line in lines:
        table.add_row(f"{line.at:.1f} s", Text(line.text, style=TONES[line.tone], no_wrap=True, overflow="ellipsis"))
    return Group(table, *(Text("") for _ in range(rows - len(lines))))  # the same height, so that nothing jumps
