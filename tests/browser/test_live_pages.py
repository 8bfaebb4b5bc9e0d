"""Pages that stay open while something happens show it without a reload."""

from tests.support.browser_tabs import BrowserSession
from tests.support.dashboard_stage import DashboardStage

MARK = "window.isSamePage = true"
"""Gone after a reload."""


async def test_the_loop_is_watched_from_the_start_of_a_call_to_its_resume(
    stage: DashboardStage, session: BrowserSession
) -> None:
    alice = await stage.create_agent("alice")
    await stage.finish_call(alice, "echo")
    calls = await session.sign_in(stage.url("/calls"), await stage.create_key("alice"))
    await calls.page.evaluate(MARK)

    call = await stage.start_call(alice, "halfway", client_session_id="conversation-42", correlation_id="report-1")
    row = calls.page.get_by_role("row").filter(has_text=call.id)
    await row.get_by_text("working").wait_for()
    timeline = await session.open_tab(stage.url(f"/calls/{call.id}"))
    await timeline.page.get_by_text("half", exact=False).first.wait_for()
    stage.upstream.release.set()

    await row.get_by_text("result").wait_for()
    entries = timeline.page.get_by_role("listitem")
    await entries.filter(has_text="204, delivered").wait_for()
    await alice.resume(await stage.wait_for_resume_token(call))
    await entries.filter(has_text="Client returned").wait_for()

    assert await calls.page.evaluate("window.isSamePage")
    assert await calls.list_complaints() == []
    assert await timeline.list_complaints() == []


async def test_the_first_page_webhooks_and_events_are_live_and_keep_what_the_reader_opened(
    stage: DashboardStage, session: BrowserSession
) -> None:
    alice = await stage.create_agent("alice")
    await stage.finish_call(alice, "echo")
    home = await session.sign_in(stage.url(), await stage.create_key("alice"))
    events = await session.open_tab(stage.url("/events"))
    webhooks = await session.open_tab(stage.url("/webhooks"))
    tabs = (home, events, webhooks)
    for tab in tabs:
        await tab.page.evaluate(MARK)
    await home.page.locator("summary").first.click()
    await events.page.locator("summary").last.focus()
    await events.page.keyboard.press("Enter")
    unfolded = await events.page.locator("details[open] pre").inner_text()

    call = await stage.finish_call(alice, "echo")
    added = await alice.register_webhook("https://receiver.example/hook")
    for tab, new in ((home, call.id), (events, call.id), (webhooks, added.id)):
        await tab.page.get_by_role("link", name=new).first.wait_for()

    assert await home.page.locator("details[open]").count() == 1
    assert await events.page.locator("details[open] pre").inner_text() == unfolded
    assert await events.page.evaluate("document.activeElement.localName") == "summary"
    assert [await tab.page.evaluate("window.isSamePage") for tab in tabs] == [True, True, True]
    assert [await tab.list_complaints() for tab in tabs] == [[], [], []]
