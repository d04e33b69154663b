"""Which processes still hold their slots."""

import os
import resource
import subprocess
import sys

import msgspec

from paceline.engine.capacity.external_slots import is_alive, process_id


def test_a_holder_is_not_taken_for_dead_while_too_many_files_are_open_to_see_it() -> None:
    us = process_id(os.getpid())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        meanwhile = is_alive(us)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert (meanwhile, is_alive(us)) == (True, True)


def test_another_process_with_the_same_number_is_not_the_holder() -> None:
    us = process_id(os.getpid())

    assert not is_alive(msgspec.structs.replace(us, start_ticks=us.start_ticks - 1))
    assert not is_alive(msgspec.structs.replace(us, boot_id="another"))


def test_a_holder_that_was_killed_is_dead_although_its_parent_has_not_reaped_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        holder = process_id(child.pid)
        before = is_alive(holder)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still there
        after = is_alive(holder)
    finally:
        child.kill()
        child.communicate()

    assert (before, after) == (True, False)
