"""Who gets in, who does not, and what a page of another site can do, in a real browser."""

from tests.support.browser_tabs import BrowserSession
from tests.support.dashboard_stage import DashboardStage


async def test_a_key_opens_the_page_that_was_asked_for_and_sign_out_closes_it(
    stage: DashboardStage, session: BrowserSession
) -> None:
    tab = await session.sign_in(stage.url("/calls"), await stage.create_key("alice"))
    (cookie,) = await session.context.cookies()

    await tab.page.get_by_role("button", name="Sign out").click()
    await tab.page.wait_for_url("**/ui/sign-in**")
    await tab.open(stage.url("/calls"))

    assert "/ui/sign-in" in tab.page.url
    assert await session.context.cookies() == []
    assert (cookie.get("httpOnly"), cookie.get("secure"), cookie.get("sameSite")) == (True, True, "Lax")
    assert await tab.list_complaints() == []


async def test_a_wrong_key_is_refused_on_the_same_page(stage: DashboardStage, session: BrowserSession) -> None:
    tab = await session.open_tab(stage.url("/calls"))
    await tab.page.get_by_label("API key").fill("rbk_wrong")
    await tab.page.get_by_role("button", name="Sign in").click()

    await tab.page.get_by_role("alert").wait_for()

    assert await session.context.cookies() == []
    assert "rbk_wrong" not in await tab.page.content()
