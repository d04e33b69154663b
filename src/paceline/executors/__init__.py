"""Executors: ways to run a session, behind one interface.

    interface        the two protocols and their values, and what an ended session left
    process          sessions as processes or in a terminal, and what dead supervisors left behind
    supervisor       the small process that runs one agent and outlives the engine
    spool            the folders of attempts: names, locks, reading, the removal of output beyond its limits; folders
                     that only their owner can enter
    spool_writer     the writing side, with the emergency record of a session
    command_runner   one command whose output is forwarded and read, and the end of its whole process tree
    openclaw_child   the program that runs a sub-agent of OpenClaw
    proc_table       the process table of the machine

Never here: what becomes of a unit.
"""
