"""Slots of the daemon for Python programs: `Client`, with the interface of the Limiter.

daemon_client  `Client`: slots, limits, signals and status; the wait for a slot, its renewal and its release
daemon_calls   HTTP calls, and their errors as Paceline's own
home_daemon    the address and the token of the home's daemon
"""
