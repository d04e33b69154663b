"""Slots of the daemon for Python programs: `Client`, with the interface of the Limiter.

daemon_client  `Client`: slots, limits, signals and status
slot           a slot of the daemon, and its renewal
slot_wait      a wait for a slot over several calls
daemon_calls   HTTP calls, and their errors as Paceline's own
home_daemon    the address and the token of the home's daemon
"""
