"""The fixtures of the fundamentals.

`reports` is an ordinary MCP server with one slow tool. `ringback` is the service in front of it. `alice` is the client of an
agent with its own API key. `receiver` is the agent's callback receiver: it verifies each callback with the webhook's secret before
it accepts it.
"""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ringback.client import RingbackClient
from tests.support.application import CallbackReceiver, RunningApplication, running_application, serving_callbacks
from tests.support.report_upstream import ReportUpstream, serving_report_upstream
from tests.support.upstreams import make_http_config


@pytest.fixture
async def reports() -> AsyncGenerator[ReportUpstream]:
    async with serving_report_upstream() as reports:
        yield reports


@pytest.fixture
async def ringback(tmp_path: Path, reports: ReportUpstream) -> AsyncGenerator[RunningApplication]:
    async with running_application(tmp_path, make_http_config(reports.url, name="reports")) as running:
        yield running


@pytest.fixture
async def alice(ringback: RunningApplication) -> RingbackClient:
    return await ringback.create_agent_client("alice")


@pytest.fixture
async def receiver() -> AsyncGenerator[CallbackReceiver]:
    async with serving_callbacks() as receiver:
        yield receiver
