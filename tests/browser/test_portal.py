"""A portal link in the frame of a product: shown by the products that the operator named, and by no other site."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Frame

from ringback.domain.principal import Caller, Principal, Scope
from tests.support.browser_tabs import BrowserSession, Tab, open_session
from tests.support.dashboard_stage import (
    HOSTILE_HOST,
    PRODUCT_HOST,
    DashboardStage,
    Site,
    serving_dashboard,
    serving_site,
)

SESSION_ID = "conversation-42"


@pytest.fixture
async def product() -> AsyncGenerator[Site]:
    async with serving_site(PRODUCT_HOST) as site:
        yield site


@pytest.fixture
async def stage(tmp_path: Path, product: Site) -> AsyncGenerator[DashboardStage]:
    async with serving_dashboard(tmp_path, portal_origins=product.origin) as running:
        yield running


async def test_a_named_product_shows_one_session_and_another_site_shows_nothing(
    stage: DashboardStage, product: Site, session: BrowserSession, chromium: Browser
) -> None:
    alice = await stage.create_agent("alice")
    shown = await stage.finish_call(alice, "echo", client_session_id=SESSION_ID)
    hidden = await stage.finish_call(alice, "echo", client_session_id="another")
    viewer = Caller(principal=Principal("alice"), scopes=frozenset({Scope.READ}))
    link = await stage.ringback.app.services.portal_links.create_link(
        viewer, client_session_id=SESSION_ID, lifetime_seconds=3600
    )
    product.html = f'<iframe src="{link.url}" width="900" height="600"></iframe>'

    tab = await session.open_tab(product.origin)
    frame = await _find_frame(tab)
    await frame.get_by_role("link", name=shown.id).first.click()
    await frame.get_by_role("heading", name="Content").wait_for()

    assert hidden.id not in await frame.content()
    assert await frame.get_by_role("button").count() == 0
    refused = await frame.goto(stage.url(f"/calls/{hidden.id}"))
    assert refused is not None
    assert refused.status == 404
    async with serving_site(HOSTILE_HOST) as hostile, open_session(chromium) as other:
        hostile.html = product.html
        stranger = await other.open_tab(hostile.origin)
        assert shown.id not in await (await _find_frame(stranger)).content()
        assert any("frame-ancestors" in error for error in stranger.errors)


async def _find_frame(tab: Tab) -> Frame:
    """The frame in the page, once it has loaded."""
    element = await tab.page.wait_for_selector("iframe")
    assert element is not None
    frame = await element.content_frame()
    assert frame is not None
    await frame.wait_for_load_state()
    return frame
