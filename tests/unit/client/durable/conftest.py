"""A DurableCaller whose service is mocked."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from ringback.client.durable import DurableCaller
from tests.support.limits import WAIT_SECONDS
from tests.support.mocked_durable_callers import create_caller, start_or_read


@pytest.fixture
async def caller() -> AsyncGenerator[DurableCaller]:
    async with asyncio.timeout(WAIT_SECONDS), create_caller(start_or_read) as caller:
        yield caller
