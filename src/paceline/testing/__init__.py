"""The public test kit: a virtual clock, a fake provider, scripted sessions, links of workers, and seeded worlds.

`SqliteStore.in_memory()` is the store for tests: a real one, without a file.
"""

from paceline.simulation.clock import VirtualClock
from paceline.simulation.executor import ScriptedExecutor
from paceline.simulation.provider.fake import FakeProvider
from paceline.store import SqliteStore
from paceline.testing.direct_link import DirectLink
from paceline.testing.world import World

__all__ = ["DirectLink", "FakeProvider", "ScriptedExecutor", "SqliteStore", "VirtualClock", "World"]
