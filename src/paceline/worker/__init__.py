"""The worker: the process that runs sessions on another host, for the engine that leads.

It starts what it is ordered to, under the same supervisors and in the same kind of spool as an engine. It reads the
output there, and sends signals and facts. Never here: a decision about a unit.
"""
