"""Blocking work in threads."""

import asyncio
import contextlib
import threading

import pytest

from paceline.hosts.jobs import BackgroundJobs


async def test_who_gives_up_waiting_leaves_work_that_has_begun_alone() -> None:
    begun, go = threading.Event(), threading.Event()

    def work() -> int:
        begun.set()
        go.wait(60)
        return 3

    with contextlib.closing(BackgroundJobs(lambda: None)) as jobs:
        job = jobs.start(work)
        assert begun.wait(60)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.wrap_future(job)
        go.set()
        assert (await asyncio.wrap_future(job), job.done(), job.result()) == (3, True, 3)
