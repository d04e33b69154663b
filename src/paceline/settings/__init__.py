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

from paceline.settings.load import load_settings as load_settings
from paceline.settings.model import LOCAL_HOST as LOCAL_HOST
from paceline.settings.model import ApiTable as ApiTable
from paceline.settings.model import ConfiguredLimit as ConfiguredLimit
from paceline.settings.model import EngineTable as EngineTable
from paceline.settings.model import FallbackRoute as FallbackRoute
from paceline.settings.model import HostSettings as HostSettings
from paceline.settings.model import KeyPoolSettings as KeyPoolSettings
from paceline.settings.model import MachineTable as MachineTable
from paceline.settings.model import ProviderSettings as ProviderSettings
from paceline.settings.model import Settings as Settings
from paceline.settings.model import governor_settings as governor_settings
