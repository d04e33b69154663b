"""How much may run.

- `governor_state`: what was learnt, loaded and saved, also for a process that does not lead
- `external_slots`: slots of programs that the engine did not start, and how one asks; `leases`: how they are granted
- `deadline_pacer`: the fewest sessions that meet a deadline; `breaker`: campaigns that pause themselves
"""
