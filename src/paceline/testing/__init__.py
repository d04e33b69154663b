"""Public test kit."""

from paceline.testing.clock import VirtualClock as VirtualClock
from paceline.testing.executor import ScriptedExecutor as ScriptedExecutor
from paceline.testing.provider import FakeProvider as FakeProvider
from paceline.testing.world import World as World
