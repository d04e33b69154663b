"""Tests of the gateway run on uvloop, as in production. Those about bytes and endings also run on asyncio's loop."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

ON_BOTH_LOOPS = ("test_exchange_disconnects", "test_exchange", "test_exchange_chaos")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    uvloops: dict[str, LoopFactory] = {"uvloop": uvloop.new_event_loop}
    return uvloops | {"asyncio": asyncio.new_event_loop} if item.path.stem in ON_BOTH_LOOPS else uvloops
