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
