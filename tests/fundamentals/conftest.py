"""What every page of this book stands on.

`reports` is an ordinary MCP server with one slow tool. `ringback` is the service in front of it. `alice` is an agent with an
API key of her own. `phone` is where she is rung: it verifies each callback with her webhook's secret before it accepts it.
"""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ringback.client import RingbackClient
from tests.support.application import Phone, RunningApplication, listening, running_application
from tests.support.reports import Reports, serving_reports
from tests.support.upstreams import http_config


@pytest.fixture
async def reports() -> AsyncGenerator[Reports]:
    async with serving_reports() as reports:
        yield reports


@pytest.fixture
async def ringback(tmp_path: Path, reports: Reports) -> AsyncGenerator[RunningApplication]:
    async with running_application(tmp_path, http_config(reports.url, name="reports")) as running:
        yield running


@pytest.fixture
async def alice(ringback: RunningApplication) -> RingbackClient:
    return await ringback.agent("alice")


@pytest.fixture
async def phone() -> AsyncGenerator[Phone]:
    async with listening() as phone:
        yield phone
