"""Files that people write, paceline.toml and plans: read whole, checked whole, every mistake with its line and a fix.

    checks            text and TOML with the line of each key, the list of mistakes, the nearest known name; checks of
                      single values, from files and variables
    model             the settings as values, with their defaults; what tokens cost
    environment       PACELINE_* variables, the home folder, the search for the file
    load              paceline.toml, variables and flags as one `Settings`
    host_fields       [hosts.NAME] and [machine]
    plan_units        where units come from, their templates, and what makes one valid
    plan_file         a plan: [campaign], [campaign.workspace] and its units, and their import into the store
    preflight         whether a plan can run on this machine now, who would pay, and what would spoil the night

Never here: anything that acts on a setting.
"""

from paceline.settings.load import load_settings
from paceline.settings.model import (
    LOCAL_HOST,
    ApiTable,
    ConfiguredLimit,
    EngineTable,
    FallbackRoute,
    HostSettings,
    KeyPoolSettings,
    MachineTable,
    ProviderSettings,
    Settings,
    governor_settings,
)

__all__ = [
    "LOCAL_HOST",
    "ApiTable",
    "ConfiguredLimit",
    "EngineTable",
    "FallbackRoute",
    "HostSettings",
    "KeyPoolSettings",
    "MachineTable",
    "ProviderSettings",
    "Settings",
    "governor_settings",
    "load_settings",
]
