"""The result of the demo: its figures, and how they are shown."""

import msgspec
from rich.table import Table

from paceline.cli.demo.progress import CampaignProgress
from paceline.cli.demo.scenario import Demo


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The share of the contested sessions that a campaign got, and the share that its priority entitles it to."""

    campaign: str
    priority: int
    got: float
    due: float
    done_at: float | None


class DemoFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is counted. Times are seconds."""

    units: int
    done: int
    attempts: int
    """Charged attempts: only a real failure of the work counts."""
    sessions: int
    parked: int
    resumed: int
    """Sessions that continued a conversation."""
    conversations: int
    """As the provider saw them. As many as units: none was started twice."""
    steps: int
    answers: int
    """As many as steps: no step was asked twice."""
    refusals: int
    reopenings: int
    peak_sessions: int
    shares: tuple[Share, ...]
    seconds: float

    @property
    def lost(self) -> int:
        return self.units - self.done


def figures(demo: Demo, now: float) -> DemoFigures:
    """Return the figures, from the store and the journal of the provider."""
    progress, units = demo.progress, demo.units()
    served = [request for request in demo.provider.requests if request.ending == "served"]
    return DemoFigures(
        units=progress.total,
        done=sum(unit.state == "done" for unit in units),
        attempts=sum(unit.counters.failures for unit in units),
        sessions=sum(unit.counters.attempts for unit in units),
        parked=sum(unit.counters.parks for unit in units),
        resumed=progress.resumed,
        conversations=len({request.session for request in served}),
        steps=progress.total * demo.plan.steps,
        answers=len(served),
        refusals=demo.provider.rate_limited,
        reopenings=progress.reopenings,
        peak_sessions=progress.peak_sessions,
        shares=shares(progress.campaigns),
        seconds=now - progress.started_at,
    )


def shares(campaigns: list[CampaignProgress]) -> tuple[Share, ...]:
    """Return the shares. Each level of priority is worth twice the one below."""
    given = max(1, sum(campaign.contested for campaign in campaigns))
    weights = sum(2.0**campaign.priority for campaign in campaigns)
    return tuple(
        Share(
            campaign=campaign.name,
            priority=campaign.priority,
            got=campaign.contested / given,
            due=2.0**campaign.priority / weights,
            done_at=campaign.done_at,
        )
        for campaign in campaigns
    )


def rows(found: DemoFigures) -> list[tuple[str, str]]:
    """Return the summary as names and values."""
    return [
        ("units done", f"{found.done} of {found.units}, {found.lost} lost"),
        ("attempts charged", f"{found.attempts}; rate-limit refusals are not counted as failed attempts"),
        ("429s met", str(found.refusals)),
        ("quota window", f"closed and reopened by a canary {found.reopenings} time{'s' * (found.reopenings != 1)}"),
        ("parked", f"{found.parked} times; {found.resumed} sessions continued their conversation"),
        ("answers", f"{found.answers} for {found.steps} steps of work, in {found.conversations} conversations"),
        ("sessions", f"{found.sessions}, never more than {found.peak_sessions} at once"),
        *((f"share of {share.campaign}", _share_words(share)) for share in found.shares),
        ("time", f"{found.seconds:.0f} s"),
    ]


def _share_words(share: Share) -> str:
    done = "" if share.done_at is None else f", done after {share.done_at:.0f} s"
    return f"{share.got:.0%} while both had work (due {share.due:.0%}){done}"


def summary_table(found: DemoFigures) -> Table:
    table = Table(title="What the engine did", title_justify="left", show_header=False, title_style="bold")
    table.add_column(style="dim")
    table.add_column()
    for name, value in rows(found):
        table.add_row(name, value)
    return table
