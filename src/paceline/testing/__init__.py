"""The public test kit: a virtual clock, a fake provider, scripted sessions, links of workers, and seeded worlds."""

from paceline.simulation.clock import VirtualClock
from paceline.simulation.executor import ScriptedExecutor
from paceline.simulation.provider import FakeProvider
from paceline.testing.direct_link import DirectLink
from paceline.testing.world import World

__all__ = ["DirectLink", "FakeProvider", "ScriptedExecutor", "VirtualClock", "World"]
