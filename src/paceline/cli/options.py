"""Arguments and options that several commands share, their completion by the shell, and what their names stand for."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from paceline.daemon.home import Home, open_home
from paceline.engine.commands import find_campaign
from paceline.errors import InvalidInput, PacelineError, UnknownName
from paceline.settings.documents import did_you_mean
from paceline.store import Campaign, Store, Unit
from paceline.views.units import iter_units

# -- what a name stands for ---------------------------------------------------------------------------

MOST_SEARCHED = 20_000
"""Units searched for a suggestion; in a store of a million the nearest name is not worth the wait."""


def find_target(store: Store, name: str) -> Unit | Campaign:
    """Return what a command acts on. A name with a slash is a unit; another is a campaign, else a unique unit id."""
    campaigns = {campaign.name: campaign for campaign in store.campaigns()}
    campaign = None if "/" in name else campaigns.get(name)
    if campaign is None:
        is_unit = "/" in name or any(store.unit(f"{each}/{name}") is not None for each in campaigns)
        return find_unit(store, name) if is_unit else find_campaign(store, name)
    units = [f"{each}/{name}" for each in campaigns if store.unit(f"{each}/{name}") is not None]
    if units:
        raise InvalidInput(f"{name!r:.80} is a campaign and also the unit {units[0]}; name the unit as {units[0]}")
    return campaign


def find_unit(store: Store, name: str) -> Unit:
    """Return the unit named `campaign/unit`, or by its own id if only one campaign has it."""
    unit = store.unit(name) if "/" in name else None
    if unit is not None:
        return unit
    ids = [f"{campaign.name}/{name}" for campaign in store.campaigns()]
    found = [unit for each in ids if (unit := store.unit(each)) is not None]
    if len(found) > 1:
        raise InvalidInput(f"several campaigns have a unit {name!r:.80}: {', '.join(unit.id for unit in found)}")
    if found:
        return found[0]
    known = [unit.id for unit in iter_units(store, campaign=None, most=MOST_SEARCHED)]
    hint = did_you_mean(name, known) or did_you_mean(name, [each.partition("/")[2] for each in known])
    raise UnknownName(f"there is no unit {name!r:.80}{hint or '; `paceline units CAMPAIGN` lists them'}")


# -- completion ---------------------------------------------------------------------------------------

MOST_COMPLETED = 200
"""More names than this do not help anyone who presses Tab."""


def complete_campaign(incomplete: str) -> list[str]:
    return _complete(incomplete, lambda home: [campaign.name for campaign in home.store.campaigns()])


def complete_unit(incomplete: str) -> list[str]:
    """Offer campaigns first, as a shell offers folders, then the units of one."""
    campaign, slash, _ = incomplete.partition("/")
    if not slash:
        return [f"{name}/" for name in complete_campaign(incomplete)]
    return _complete(
        incomplete, lambda home: [unit.id for unit in iter_units(home.store, campaign=campaign, most=MOST_SEARCHED)]
    )


def complete_target(incomplete: str) -> list[str]:
    """Offer campaigns, and the units of one behind its slash."""
    return complete_unit(incomplete) if "/" in incomplete else complete_campaign(incomplete)


def complete_scope(incomplete: str) -> list[str]:
    return _complete(incomplete, _scopes)


def _scopes(home: Home) -> list[str]:
    accounts = [account.scope for account in home.settings.accounts.values()]
    campaigns = [f"campaign:{campaign.name}" for campaign in home.store.campaigns()]
    return sorted({*home.settings.limits, *accounts, *campaigns})


def _complete(incomplete: str, names: Callable[[Home], list[str]]) -> list[str]:
    try:
        with open_home(os.environ) as home:
            return [name for name in names(home) if name.startswith(incomplete)][:MOST_COMPLETED]
    except (PacelineError, OSError):
        return []


# -- options ------------------------------------------------------------------------------------------

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file: a campaign and its units, in TOML.")]
PlanFiles = Annotated[
    list[Path], typer.Argument(metavar="PLAN...", help="Plan files: each a campaign and its units, in TOML.")
]
Update = Annotated[bool, typer.Option("--update", help="Also update stored units that differ from the plan.")]
CampaignName = Annotated[
    str, typer.Argument(metavar="CAMPAIGN", help="Its name in the plan.", autocompletion=complete_campaign)
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="CAMPAIGN|UNIT",
        help="A campaign, campaign/unit, or a unit's id if it is unique.",
        autocompletion=complete_target,
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CAMPAIGN|UNIT]...",
        help="Campaigns, campaign/unit, or ids of units if they are unique.",
        autocompletion=complete_target,
    ),
]
AllCampaigns = Annotated[bool, typer.Option("--all", help="All campaigns.")]
UnitName = Annotated[
    str,
    typer.Argument(
        metavar="UNIT",
        help="campaign/unit, or the unit's id if it is unique.",
        autocompletion=complete_unit,
    ),
]
Scope = Annotated[
    str,
    typer.Argument(
        metavar="SCOPE",
        help="provider, provider/account, .../model or a pattern; sessions, runs, "
        "campaign:NAME, agent:NAME, host:NAME.",
        autocompletion=complete_scope,
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Keep running and show what is new.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
