"""Settings: paceline.toml, PACELINE_* variables and flags as one frozen, checked value.

Never here: anything that acts on a setting.
"""

from paceline.settings.load import load_settings
from paceline.settings.model import (
    AccountSettings,
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
    "AccountSettings",
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
