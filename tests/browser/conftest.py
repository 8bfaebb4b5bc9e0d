"""One Chromium for all tests, and for each test a service and a session without cookies."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.support.browser_tabs import BrowserSession, launch_chromium, open_session
from tests.support.dashboard_stage import DashboardStage, serving_dashboard


@pytest.fixture(scope="session")
async def chromium() -> AsyncGenerator[Browser]:
    async with launch_chromium() as browser:
        yield browser


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[DashboardStage]:
    async with serving_dashboard(tmp_path) as running:
        yield running


@pytest.fixture
async def session(chromium: Browser, stage: DashboardStage) -> AsyncGenerator[BrowserSession]:
    """Depends on the stage, because open tabs end before the service that they are connected to."""
    async with open_session(chromium) as opened:
        yield opened
