"""Forecasts of campaigns: what the engine would do in the next weeks, simulated in virtual time.

`basis` is what a forecast rests on, `simulator` runs one future, `forecaster` asks the questions. `preview` shows only
the next step. Never here: printing, or a decision about limits; the simulated engine is the real one.
"""
