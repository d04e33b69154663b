"""The public test kit: a virtual clock, a fake provider, scripted sessions, and seeded worlds with their checkers."""

from paceline.simulation.clock import VirtualClock
from paceline.simulation.executor import ScriptedExecutor
from paceline.simulation.provider import FakeProvider
from paceline.testing.world import World

__all__ = ["FakeProvider", "ScriptedExecutor", "VirtualClock", "World"]
