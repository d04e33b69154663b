"""The part of the configuration that the engine uses, as one value."""

import msgspec

from paceline.agents.account import Account, GatewayAddress
from paceline.core import GovernorSettings
from paceline.core.unit_lifecycle import Policy


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds. `stall` is how long a session may be silent and idle before it is stopped."""

    governor: GovernorSettings
    accounts: dict[str, Account] = {}
    heartbeat: float = 1.0
    lease: float = 60.0
    stall: float | None = None
    policy: Policy = Policy()
    tz: str = "UTC"
    gateway: GatewayAddress | None = None
    """Where sessions of accounts with `via_gateway` make their calls; None without a gateway."""
