"""Buttons of the dashboard in a real browser, by mouse and by keyboard, and who has none."""

import asyncio

import pytest
from playwright.async_api import Page

from ringback.client import DeliveryDetail, RingbackClient
from ringback.domain.principal import Caller, Scope
from ringback.services.calls.call_starts import StartCallRequest
from ringback.services.calls.new_calls import StartedCall
from tests.support.browser_tabs import BrowserSession
from tests.support.dashboard_contents import wait_for_delivery
from tests.support.dashboard_stage import DashboardStage
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS

TAB_STOPS_MAX = 200
"""More than any page has."""


async def test_a_dead_letter_is_redelivered_by_a_click(stage: DashboardStage, session: BrowserSession) -> None:
    alice = await stage.create_agent("alice")
    dead = await _make_dead_letter(stage, alice)
    tab = await session.sign_in(stage.url("/deliveries?state=dead"), await stage.create_key("alice"))

    await tab.page.get_by_role("link", name=dead.id).click()
    await tab.page.get_by_role("button", name="Redeliver").click()
    await tab.page.get_by_role("status").wait_for()

    redelivered = await _wait_for_generation(alice, dead, 2)
    assert redelivered.id in tab.page.url
    assert redelivered.state == "delivered"
    assert await tab.list_complaints() == []


async def test_a_dead_letter_is_redelivered_by_keyboard_alone(stage: DashboardStage, session: BrowserSession) -> None:
    """All matching ones, with their number first."""
    alice = await stage.create_agent("alice")
    dead = await _make_dead_letter(stage, alice)
    tab = await session.sign_in(stage.url("/deliveries?state=dead"), await stage.create_key("alice"))

    await _press_by_keyboard(tab.page, "Redeliver all that match…")
    await tab.page.wait_for_url("**/deliveries/redeliver?**")
    assert "1 delivery" in await tab.page.inner_text("main")
    await _press_by_keyboard(tab.page, "Send 1 again")

    assert (await _wait_for_generation(alice, dead, 2)).state == "delivered"


async def test_a_second_click_before_the_response_sends_no_second_form(
    stage: DashboardStage, session: BrowserSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two requests a browser shows the response to the second one. Here only that to the first one has the secret."""
    tab = await session.sign_in(stage.url("/upstreams/stage/tools/form"), await stage.create_key("alice"))
    await tab.page.get_by_label("text").fill("hello")
    await tab.page.get_by_text("Session, correlation and callback").click()
    await tab.page.get_by_label("Callback URL").fill(stage.callbacks.url())
    is_started, has_clicked_again = asyncio.Event(), asyncio.Event()
    calls = stage.ringback.app.services.calls
    start_call = calls.start_call

    async def start_and_wait(caller: Caller, request: StartCallRequest) -> StartedCall:
        started = await start_call(caller, request)
        is_started.set()
        await has_clicked_again.wait()
        return started

    monkeypatch.setattr(calls, "start_call", start_and_wait)
    button = tab.page.get_by_role("button", name="Start the call")
    await button.scroll_into_view_if_needed()
    box = await button.bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    await tab.page.mouse.click(*middle)
    await asyncio.wait_for(is_started.wait(), WAIT_SECONDS)
    await tab.page.mouse.click(*middle)  # as a person does, also before the response
    has_clicked_again.set()

    await tab.page.get_by_text("The signing secret of the callback").wait_for()
    assert "whsec_" in await tab.page.inner_text("main")


async def test_the_dialog_of_a_cancellation_has_a_button_that_keeps_the_call(
    stage: DashboardStage, session: BrowserSession
) -> None:
    alice = await stage.create_agent("alice")
    call = await stage.start_call(alice, "halfway")
    tab = await session.sign_in(stage.url(f"/calls/{call.id}"), await stage.create_key("alice"))

    await tab.page.get_by_role("button", name="Cancel the call").click()
    await tab.page.get_by_role("button", name="Keep it running").click()

    assert not await tab.page.get_by_role("dialog").is_visible()
    assert (await alice.call(call.id)).status == "working"
    stage.upstream.release.set()


async def test_a_key_that_only_reads_sees_no_buttons_and_a_foreign_key_no_page(
    stage: DashboardStage, session: BrowserSession
) -> None:
    alice = await stage.create_agent("alice")
    dead = await _make_dead_letter(stage, alice)
    pages = [
        f"/deliveries/{dead.id}",
        f"/webhooks/{dead.webhook_id}",
        f"/calls/{dead.call_id}",
        "/deliveries?state=dead",
    ]
    reader = await session.sign_in(stage.url(""), await stage.create_key("alice", frozenset({Scope.READ})))
    for path in pages:
        assert await reader.open(stage.url(path)) == 200
        posts = reader.page.locator('form[method="post"]:not([action$="/sign-out"])')
        assert await posts.count() == 0, path

    await reader.page.get_by_role("button", name="Sign out").click()
    await reader.page.wait_for_url("**/ui/sign-in**")
    stranger = await session.sign_in(stage.url(""), await stage.create_key("mallory"))

    statuses = [await stranger.open(stage.url(path)) for path in pages]
    assert statuses == [404, 404, 404, 200]
    assert dead.id not in await stranger.page.content()


async def _make_dead_letter(stage: DashboardStage, agent: RingbackClient) -> DeliveryDetail:
    """A dead delivery, whose receiver works again."""
    stage.receiver.is_broken = True
    call = await stage.finish_call(agent, "echo")
    dead = await wait_for_delivery(agent, call, "dead")
    stage.receiver.is_broken = False
    return await agent.delivery(dead)


async def _wait_for_generation(agent: RingbackClient, dead: DeliveryDetail, generation: int) -> DeliveryDetail:
    """The delivery of this generation, once it is delivered."""
    found: list[DeliveryDetail] = []

    async def is_delivered() -> bool:
        assert dead.call_id is not None
        deliveries = [each async for each in agent.deliveries(call_id=dead.call_id)]
        wanted = [each for each in deliveries if each.generation == generation and each.state == "delivered"]
        found[:] = [await agent.delivery(each.id) for each in wanted]
        return bool(found)

    await wait_until(is_delivered)
    return found[0]


async def _press_by_keyboard(page: Page, name: str) -> None:
    """Reach a link or button by Tab, see that it shows the focus, and press Enter."""
    for _ in range(TAB_STOPS_MAX):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.innerText") == name:
            break
    assert await page.evaluate("document.activeElement.innerText") == name
    assert await page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    await page.keyboard.press("Enter")
