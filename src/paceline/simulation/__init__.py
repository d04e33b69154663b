"""Simulated surroundings of the engine: a virtual clock, scripted sessions, and a fake provider.

Forecasts, the demo and tests use them. Never here: a checker or an assertion; those are in `paceline.testing`.
"""
