"""The public test kit: a virtual clock, a fake provider, scripted sessions, and seeded worlds with their checkers."""

from paceline.simulation.clock import VirtualClock as VirtualClock
from paceline.simulation.executor import ScriptedExecutor as ScriptedExecutor
from paceline.simulation.provider import FakeProvider as FakeProvider
from paceline.testing.world import World as World
