"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.completion import complete_campaign, complete_scope, complete_target, complete_unit

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
