"""Public test kit."""

from paceline.testing.clock import VirtualClock as VirtualClock
