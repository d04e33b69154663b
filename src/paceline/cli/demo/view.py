"""How the demo looks while it runs: one screen of 22 lines, readable at 80 columns. Looks only, never acts."""

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from paceline.cli.demo.ledger import AgentState, Ledger, Line, Team, Tone
from paceline.cli.demo.play import SCOPE, Play
from paceline.core import Deferred, ScopeStatus, WindowStatus
from paceline.limiter import Limiter

WIDEST = 92
BAR_CELLS = 24
REASON_ROWS = 2
LINE_ROWS = 6
GLYPHS: dict[AgentState, tuple[str, str]] = {
    "idle": ("○", "dim"),
    "waiting": ("○", "yellow"),
    "running": ("●", "bold green"),
    "done": ("✓", "green"),
}
TONES: dict[Tone, str] = {"good": "green", "bad": "red", "news": "cyan"}


def screen(play: Play, now: float, width: int) -> RenderableType:
    """The whole of it, as it is at `now`."""
    status = play.limiter.scope_status(SCOPE)
    assert status is not None
    parts = (
        (_capacity(play, status, now), f"Paceline demo · {now - play.ledger.started_at:.0f} s", "cyan"),
        (_teams(play.ledger.teams), "two teams of agents · ● running  ○ waiting  ✓ done", "blue"),
        (
            _reasons(why_waiting(play.limiter, play.ledger), now),
            _why_title(play.ledger.waiting),
            "yellow",
        ),
        (_lines(list(play.ledger.lines)[-LINE_ROWS:]), "what happened", "magenta"),
    )
    return Group(
        *(
            Panel(body, title=title, title_align="left", border_style=style, padding=(0, 1), width=min(width, WIDEST))
            for body, title, style in parts
        )
    )


# -- the scope -----------------------------------------------------------------------------------


def _capacity(play: Play, status: ScopeStatus, now: float) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    address = play.provider.url.removeprefix("http://")
    table.add_row("scope", Text(f"{SCOPE} on a fake provider ({address})", style="dim"))
    table.add_row("in flight", _places(status))
    table.add_row("5h window", _window(status.window, now))
    table.add_row("starts", _starts(play, status, now))
    return table


def _places(status: ScopeStatus) -> Text:
    cap = status.limit or status.in_flight
    text = Text("●" * status.in_flight, style="bold green")
    text.append("○" * max(0, cap - status.in_flight), style="dim")
    text.append(f"  {status.in_flight} of {cap}", style="bold")
    if status.configured != status.limit:
        text.append(f"  (configured {status.configured}, learnt {status.limit})", style="dim")
    return text


def _window(window: WindowStatus | None, now: float) -> Text:
    if window is None:
        return Text("nothing known yet", style="dim")
    used = min(1.0, window.used_ratio or 0.0)
    filled = round(used * BAR_CELLS)
    text = Text("█" * filled, style="red" if used >= 0.9 else "green")
    text.append("░" * (BAR_CELLS - filled), style="dim")
    match window.state:
        case "closed":
            left = max(0.0, (window.probe_at or now) - now)
            text.append(f"  spent, opens again in {left:.0f} s", style="bold red")
        case "probing":
            text.append("  a canary is trying it", style="bold cyan")
        case "wave":
            text.append(f"  {used:.0%} used, reopened in a wave", style="cyan")
        case _:
            text.append(f"  {used:.0%} used", style="dim")
    return text


def _starts(play: Play, status: ScopeStatus, now: float) -> Text:
    """The provider's own trouble pauses its whole scope, a refusal of the account only the account's."""
    provider = play.limiter.scope_status(SCOPE.partition("/")[0])
    until = max((scope.paused_until or 0.0 for scope in (status, provider) if scope is not None), default=0.0)
    if until > now:
        return Text(f"paused for {until - now:.1f} s", style="bold red")
    if status.window is not None and status.window.state in ("closed", "probing"):
        return Text("parked until the window opens", style="bold red")
    return Text("open", style="green")


# -- the agents ----------------------------------------------------------------------------------


def _teams(teams: list[Team]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for team in teams:
        cells = Text()
        for agent in team.agents:
            glyph, style = GLYPHS[agent.state]
            cells.append(glyph, style=style)
        priority = Text(f"priority {team.priority}", style="dim")
        table.add_row(Text(team.name, style="bold"), priority, cells, f"{team.done:>3} of {team.calls} calls")
    return table


def why_waiting(limiter: Limiter, ledger: Ledger) -> list[tuple[int, Deferred]]:
    """The waiters by what holds them, the most frequent reason first."""
    found: dict[tuple[str, str], tuple[int, Deferred]] = {}
    for team in ledger.teams:
        for agent in team.agents:
            why = limiter.why(agent.ticket) if agent.ticket is not None else None
            if why is not None:
                count, first = found.get((why.reason, why.scope), (0, why))
                found[why.reason, why.scope] = (count + 1, first)
    return sorted(found.values(), key=lambda item: -item[0])


def _reasons(reasons: list[tuple[int, Deferred]], now: float) -> RenderableType:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(style="yellow", min_width=13, no_wrap=True)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column(justify="right", min_width=6, no_wrap=True)
    for count, why in reasons[:REASON_ROWS]:
        table.add_row(f"{count:>2} {why.reason}", why.detail, countdown(why.retry_at, now))
    return _padded(table, REASON_ROWS - len(reasons[:REASON_ROWS]))


def _why_title(waiting: int) -> str:
    return f"why {waiting} wait" if waiting else "nobody waits"


def countdown(retry_at: float | None, now: float) -> str:
    """What is left, or nothing where no time alone will help."""
    return "" if retry_at is None or retry_at <= now else f"{retry_at - now:.1f} s"


# -- what happened -------------------------------------------------------------------------------


def _lines(lines: list[Line]) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", justify="right", min_width=6)
    for line in lines:
        table.add_row(f"{line.at:.1f} s", Text(line.text, style=TONES[line.tone], no_wrap=True, overflow="ellipsis"))
    return _padded(table, LINE_ROWS - len(lines))


def _padded(body: RenderableType, rows: int) -> RenderableType:
    """The same height whatever there is to tell, so that nothing jumps."""
    return Group(body, *(Text("") for _ in range(rows)))
