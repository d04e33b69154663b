"""Blocking work in threads, and work that another machine does."""

import asyncio
from concurrent.futures import Future

import pytest

from paceline.hosts.jobs import Job


async def test_who_gives_up_waiting_leaves_work_that_has_begun_alone() -> None:
    future: Future[int] = Future()
    future.set_running_or_notify_cancel()
    job = Job(future)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await job.wait()
    future.set_result(3)
    assert (job.is_over, job.result(), await job.wait()) == (True, 3, 3)
