"""The commands of the engine: names, options and help. Each hands over to its module."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from paceline.cli.commands import control as steering
from paceline.cli.commands import status as state
from paceline.cli.commands import stored_state as looking
from paceline.cli.commands.add import add_plan
from paceline.cli.commands.doctor import show_doctor
from paceline.cli.commands.exec import execute
from paceline.cli.commands.preview import show_preview
from paceline.cli.commands.run import run_plan
from paceline.cli.commands.why import show_why
from paceline.cli.unit_lookup import complete_campaign, complete_scope, complete_unit
from paceline.cli.wiring import open_home

commands = typer.Typer()

RUNNING = "Campaigns"
LOOKING = "Looking in"
CAPACITY = "Capacity"

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file: a campaign and its units, in TOML.")]
Update = Annotated[bool, typer.Option("--update", help="Take units that differ from the stored ones, too.")]
CampaignName = Annotated[
    str, typer.Argument(metavar="CAMPAIGN", help="Its name in the plan.", autocompletion=complete_campaign)
]
CampaignNames = Annotated[
    list[str] | None, typer.Argument(metavar="[CAMPAIGN]...", help="Their names.", autocompletion=complete_campaign)
]
UnitName = Annotated[
    str,
    typer.Argument(
        metavar="UNIT", help="campaign/unit, or the unit's id where only one has it.", autocompletion=complete_unit
    ),
]
Scope = Annotated[
    str,
    typer.Argument(
        metavar="SCOPE",
        help="provider, provider/account, .../model or a pattern; sessions, runs, campaign:NAME, agent:NAME.",
        autocompletion=complete_scope,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Stay, and show what comes.")]
State = Literal["waiting", "parked", "todo", "running", "done", "quarantined", "held", "cancelled"]


# -- campaigns -------------------------------------------------------------------------------------


@commands.command(rich_help_panel=RUNNING)
def run(plan: PlanFile, update: Update = False, as_json: AsJson = False) -> None:
    """Run a plan to its end, in spite of limits, crashes and reboots.

    The plan is checked whole; then its units run as real agent sessions, as many at once as the limits allow. A unit
    that meets a spent quota window is parked and resumed by itself when the window reopens; that costs no attempt.

    [bold]Ctrl-C[/bold] stops the engine; sessions that run go on by themselves. Whatever happened, run it again and it
    goes on: nothing is lost, nothing is done twice. Other campaigns of the same home run along.

    Exit codes: 0 all done; 1 some units failed for good or are held; 2 something in the plan, the settings or on this
    machine is wrong; 75 another engine runs this home; 130 interrupted.
    """
    with open_home() as home:
        raise typer.Exit(run_plan(home, plan, update=update, as_json=as_json))


@commands.command(rich_help_panel=RUNNING)
def up(
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Where to listen.", show_default="127.0.0.1, or as set")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0 takes a free one.", show_default="7433, or as set")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the daemon: engine, HTTP API, gateway and page, until it is stopped.

    Once it serves it prints one address with a token in it: open it in a browser. Campaigns are added with
    [bold]paceline add[/bold], on the page or over HTTP. [bold]Ctrl-C[/bold] stops it; sessions that run go on by
    themselves and are found again.

    Exit codes: 0 stopped; 2 something is wrong with the settings, the token file or the address; 75 another engine
    runs this home.
    """
    from paceline.cli.daemon import run_daemon  # the other commands need not load a web server

    with open_home() as home:
        run_daemon(home, host=host, port=port, as_json=as_json)


@commands.command(rich_help_panel=RUNNING)
def token(
    read_only: Annotated[bool, typer.Option("--read-only", help="The one that is good for looking only.")] = False,
    url: Annotated[bool, typer.Option("--url", help="The address that opens the page with it.")] = False,
) -> None:
    """Print the token of the HTTP API, made if there is none yet. Who has it can do all that you can do here."""
    from paceline.cli.daemon import show_token

    with open_home() as home:
        show_token(home, read_only=read_only, as_url=url)


@commands.command(rich_help_panel=RUNNING)
def add(plan: PlanFile, update: Update = False, as_json: AsJson = False) -> None:
    """Add a plan to what the engine runs, or its new units to a campaign that is there already.

    Adding again is harmless: known units are left, done ones stay done. Units that differ from what is stored are
    named and left, unless you say --update.
    """
    with open_home() as home:
        add_plan(home, plan, update=update, as_json=as_json)


@commands.command(rich_help_panel=RUNNING)
def preview(plan: PlanFile, as_json: AsJson = False) -> None:
    """Say what of a plan would be started now, and what holds the rest. Starts nothing, stores nothing."""
    with open_home() as home:
        show_preview(home, plan, as_json=as_json)


@commands.command(rich_help_panel=RUNNING)
def forecast(
    plan: Annotated[Path | None, typer.Argument(metavar="[PLAN]", help="A plan file.")] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="CAMPAIGN",
            help="Play what has run again, against the settings of now.",
            autocompletion=complete_campaign,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play a plan through against the limits and windows: when it is done, when it parks, which pool is worth it.

    It is played by the engine itself in virtual time, beside the campaigns that are stored, with durations and windows
    as they were seen here. Starts nothing, stores nothing.
    """
    from paceline.forecast.forecaster import show_forecast  # the other commands need not load a simulation

    with open_home() as home:
        show_forecast(home, plan, replay=replay, as_json=as_json)


@commands.command(rich_help_panel=RUNNING)
def pause(
    campaign: CampaignNames = None,
    everything: Annotated[bool, typer.Option("--all", help="All campaigns.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start nothing more of a campaign. Sessions that run go on to their end."""
    with open_home() as home:
        steering.pause_campaigns(home, campaign or [], everything=everything, as_json=as_json)


@commands.command(rich_help_panel=RUNNING)
def resume(
    campaign: CampaignNames = None,
    everything: Annotated[bool, typer.Option("--all", help="All campaigns.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a paused campaign go on."""
    with open_home() as home:
        steering.resume_campaigns(home, campaign or [], everything=everything, as_json=as_json)


@commands.command(rich_help_panel=RUNNING)
def cancel(campaign: CampaignName, as_json: AsJson = False) -> None:
    """Give up all units of a campaign that are not done, for good. Sessions that run are ended."""
    with open_home() as home:
        steering.cancel_campaign(home, campaign, as_json=as_json)


@commands.command(rich_help_panel=RUNNING)
def delete(
    campaign: CampaignName,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget a campaign with all its units and their results. Refused while one of them runs: cancel it first."""
    with open_home() as home:
        steering.delete_campaign(home, campaign, is_sure=is_sure, as_json=as_json)


@commands.command(rich_help_panel=RUNNING)
def retry(campaign: CampaignName, as_json: AsJson = False) -> None:
    """Try the quarantined and held units of a campaign again, with their counters at zero."""
    with open_home() as home:
        steering.retry_campaign(home, campaign, as_json=as_json)


@commands.command("exec", rich_help_panel=RUNNING, context_settings={"ignore_unknown_options": True})
def exec_command(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command and its arguments.")],
    scope: Annotated[
        str | None,
        typer.Option(
            metavar="SCOPE", help="What it occupies: provider/account/model, or less.", autocompletion=complete_scope
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="AGENT", help="How its output is read.", show_default="by its name")
    ] = None,
    priority: Annotated[int, typer.Option(help="Higher goes first.")] = 0,
) -> None:
    """Run any command inside a slot, sharing the limits with everything else on this machine.

    It waits until there is room. Where the command ends at a rate limit or a spent window, it waits and runs it again.
    The exit code is the command's own.

    [bold]paceline exec --scope anthropic/max-1/opus-4-6 -- claude -p "Tidy the docs"[/bold]
    """
    with open_home() as home:
        raise typer.Exit(execute(home, command, scope=scope, agent=agent, priority=priority))


# -- looking in ------------------------------------------------------------------------------------


@commands.command("list", rich_help_panel=LOOKING)
def list_campaigns(as_json: AsJson = False) -> None:
    """List the campaigns and how far they are."""
    with open_home() as home:
        looking.show_campaigns(home, as_json=as_json)


@commands.command(rich_help_panel=LOOKING)
def status(as_json: AsJson = False) -> None:
    """Say whether an engine runs, what the pool does, and when the next parked unit resumes."""
    with open_home() as home:
        state.show_status(home, as_json=as_json)


@commands.command(rich_help_panel=LOOKING)
def top() -> None:
    """Watch campaigns, capacity, units and events live in the terminal, and steer them; ? lists the keys.

    Works next to an engine, and where none runs. For programs there is [bold]paceline status --json[/bold].
    """
    from paceline.cli.top.command import show_top  # the other commands need not load a terminal toolkit

    with open_home() as home:
        show_top(home)


@commands.command(rich_help_panel=LOOKING)
def units(
    campaign: CampaignName,
    state: Annotated[State | None, typer.Option(help="Only these.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many.", show_default="100; all with --json")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the units of a campaign with their state, attempts and reason. Only real failures count as attempts."""
    with open_home() as home:
        looking.show_units(home, campaign, state=state, most=limit, as_json=as_json)


@commands.command(rich_help_panel=LOOKING)
def why(unit: UnitName, as_json: AsJson = False) -> None:
    """Say what holds a unit, since when, until when, and what you can do about it."""
    with open_home() as home:
        show_why(home, unit, as_json=as_json)


@commands.command(rich_help_panel=LOOKING)
def logs(
    unit: UnitName,
    channel: Annotated[Literal["stdout", "stderr", "screen"] | None, typer.Option(help="Only this one.")] = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Show what the last try of a unit printed.

    On a terminal, control characters are taken out: what an agent prints may be hostile. To a pipe go the bytes as
    they are.
    """
    with open_home() as home:
        looking.show_logs(home, unit, channel=channel, follow=follow, as_json=as_json)


@commands.command(rich_help_panel=LOOKING)
def events(
    unit: Annotated[
        str | None, typer.Option(metavar="UNIT", help="Only of this unit.", autocompletion=complete_unit)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The last so many.")] = 50,
    after: Annotated[
        int | None, typer.Option(min=0, metavar="ID", help="Those after this id, instead of the last ones.")
    ] = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Show what happened: starts, ends, parks, pauses, windows, limits. With --json one event in a line."""
    with open_home() as home:
        looking.show_events(home, unit=unit, after=after, most=limit, follow=follow, as_json=as_json)


@commands.command(rich_help_panel=LOOKING)
def doctor(as_json: AsJson = False) -> None:
    """Look over this machine: settings, agent CLIs, accounts, keys, disk; and say how to mend what is wrong."""
    raise typer.Exit(show_doctor(as_json=as_json))


# -- capacity --------------------------------------------------------------------------------------


@commands.command(rich_help_panel=CAPACITY)
def limits(as_json: AsJson = False) -> None:
    """Show every limit: what is in force, where it comes from, what was learnt, what is paused or closed."""
    with open_home() as home:
        state.show_limits(home, as_json=as_json)


@commands.command(rich_help_panel=CAPACITY)
def pool(
    size: Annotated[str, typer.Argument(metavar="N", help="Sessions at once, or none for no limit.")],
    as_json: AsJson = False,
) -> None:
    """Set how many sessions run at once, all campaigns together. Takes effect live; what runs is never ended."""
    with open_home() as home:
        steering.set_pool(home, size, as_json=as_json)


@commands.command(rich_help_panel=CAPACITY)
def limit(
    scope: Scope,
    limit: Annotated[
        str, typer.Argument(metavar="N|none|default", help="A number, none, or what the settings say again.")
    ],
    as_json: AsJson = False,
) -> None:
    """Set how many slots a scope may hold. It is stored, and wins over the file until you set it to default.

    [bold]paceline limit "anthropic/*/opus-*" 2[/bold]  gives every account two opus sessions.
    """
    with open_home() as home:
        steering.set_limit(home, scope, limit, as_json=as_json)


@commands.command(rich_help_panel=CAPACITY)
def cooldown(
    scope: Scope,
    duration: Annotated[str, typer.Argument(metavar="350ms|auto", help="How long, 0 for none; auto learns it.")],
    as_json: AsJson = False,
) -> None:
    """Set how long a released slot still counts, because the provider's own counter lags."""
    with open_home() as home:
        steering.set_cooldown(home, scope, duration, as_json=as_json)


@commands.command(rich_help_panel=CAPACITY)
def restore(scope: Scope, as_json: AsJson = False) -> None:
    """Put a scope back to its configured limit: forget what was learnt of it, and lift a hold.

    After a refused login or a billing stop an account is held until a person has seen to it; this is how you say so.
    """
    with open_home() as home:
        steering.restore_scope(home, scope, as_json=as_json)
