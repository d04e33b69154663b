"""Settings: paceline.toml, PACELINE_* and flags as one frozen value, checked whole.

Here too: how files that people write are read and how their mistakes are told, which plan files share.
Never here: anything that acts on a setting.
"""

from paceline.config_files.durations import parse_duration
from paceline.settings.load import load_settings
from paceline.settings.model import (
    AccountSettings,
    ApiTable,
    ConfiguredLimit,
    EngineTable,
    ProviderSettings,
    Settings,
    governor_settings,
)

__all__ = [
    "AccountSettings",
    "ApiTable",
    "ConfiguredLimit",
    "EngineTable",
    "ProviderSettings",
    "Settings",
    "governor_settings",
    "load_settings",
    "parse_duration",
]
