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
    refused = await frame.goto(stage.url(f"/portal/{link.link.id}/calls/{hidden.id}"))
    assert refused is not None
    assert refused.status == 404
    async with serving_site(HOSTILE_HOST) as hostile, open_session(chromium) as other:
        hostile.html = product.html
        stranger = await other.open_tab(hostile.origin)
        assert shown.id not in await (await _find_frame(stranger)).content()
        assert any("frame-ancestors" in error for error in stranger.errors)


async def test_two_frames_of_one_page_show_each_its_own_link_also_live(
    stage: DashboardStage, product: Site, session: BrowserSession
) -> None:
    agents = {name: await stage.create_agent(name) for name in ("alice", "bob")}
    before = {name: (await stage.finish_call(agent, "echo")).id for name, agent in agents.items()}
    links = [(await agent.create_portal_link()).url for agent in agents.values()]
    product.html = "".join(f'<iframe src="{url}" width="900" height="600"></iframe>' for url in links)

    tab = await session.open_tab(product.origin)
    frames = {name: await _find_frame(tab, place) for place, name in enumerate(agents)}
    for frame in frames.values():
        await frame.get_by_role("link", name="Calls", exact=True).click()
        await frame.get_by_role("heading", name="Calls", exact=True).wait_for()
    later = {name: (await stage.finish_call(agent, "echo")).id for name, agent in agents.items()}
    for name, frame in frames.items():
        await frame.get_by_role("link", name=later[name]).wait_for()

    shown = {name: await frame.content() for name, frame in frames.items()}
    for name, html in shown.items():
        foreign = next(each for each in agents if each != name)
        assert [before[name] in html, later[name] in html] == [True, True]
        assert [before[foreign] in html, later[foreign] in html] == [False, False]
    assert await tab.list_complaints() == []


async def _find_frame(tab: Tab, place: int = 0) -> Frame:
    """One of the frames in the page, once it has loaded."""
    await tab.page.wait_for_selector("iframe")
    element = (await tab.page.query_selector_all("iframe"))[place]
    frame = await element.content_frame()
    assert frame is not None
    await frame.wait_for_load_state()
    return frame
