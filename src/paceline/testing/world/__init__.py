"""World: a seeded simulation with checkers outside the object it tests."""

from paceline.testing.world.fleet import FleetFigures as FleetFigures
from paceline.testing.world.world import Figures as Figures
from paceline.testing.world.world import World as World
