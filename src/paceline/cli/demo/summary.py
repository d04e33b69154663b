"""What came of the demo: figures, and the table and lines that show them."""

from statistics import median

import msgspec
from rich.table import Table

from paceline.cli.demo.ledger import Team
from paceline.cli.demo.play import Play


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the contested places that a team was given, and the part its priority stands for."""

    team: str
    priority: int
    got: float
    due: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All that is counted. Times are seconds."""

    calls: int
    done: int
    refusals: dict[str, int]
    peak_in_flight: int
    capacity: int
    median_wait: float
    longest_wait: float
    reopenings: int
    usage_polls: int
    shares: tuple[Share, ...]
    seconds: float

    @property
    def lost(self) -> int:
        return self.calls - self.done


def figures(play: Play, now: float) -> Figures:
    ledger = play.ledger
    return Figures(
        calls=ledger.calls,
        done=ledger.done,
        refusals=dict(ledger.refusals),
        peak_in_flight=play.provider.peak_concurrency,
        capacity=play.plan.capacity,
        median_wait=median(ledger.waits) if ledger.waits else 0.0,
        longest_wait=max(ledger.waits, default=0.0),
        reopenings=ledger.reopenings,
        usage_polls=play.provider.usage_polls,
        shares=shares(ledger.teams),
        seconds=now - ledger.started_at,
    )


def shares(teams: list[Team]) -> tuple[Share, ...]:
    """A level of priority is worth twice the one below."""
    given = max(1, sum(team.contested for team in teams))
    weights = sum(2.0**team.priority for team in teams)
    return tuple(
        Share(team=team.name, priority=team.priority, got=team.contested / given, due=2.0**team.priority / weights)
        for team in teams
    )


def rows(found: Figures) -> list[tuple[str, str]]:
    """The summary as names and values."""
    refused = ", ".join(f"{count} {kind}" for kind, count in sorted(found.refusals.items())) or "none"
    return [
        ("calls done", f"{found.done} of {found.calls}, {found.lost or 'none'} lost"),
        ("refusals met", f"{sum(found.refusals.values())} ({refused})"),
        ("peak in flight", f"{found.peak_in_flight} of the {found.capacity} the provider allows"),
        ("waits", f"median {found.median_wait:.1f} s, longest {found.longest_wait:.1f} s"),
        *(
            (
                f"share of {share.team}",
                f"{share.got:.0%} of contested places (priority {share.priority}: {share.due:.0%})",
            )
            for share in found.shares
        ),
        ("quota window", f"closed and reopened by a canary {found.reopenings} time{'s' * (found.reopenings != 1)}"),
        ("usage readings", str(found.usage_polls)),
        ("time", f"{found.seconds:.0f} s"),
    ]


def summary_table(found: Figures) -> Table:
    table = Table(title="What the limiter did", title_justify="left", show_header=False, title_style="bold")
    table.add_column(style="dim")
    table.add_column()
    for name, value in rows(found):
        table.add_row(name, value)
    return table
