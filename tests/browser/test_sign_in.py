"""Who gets in, who does not, and what a page of another site can do, in a real browser."""

from tests.support.browser_tabs import WAIT_MS, BrowserSession, Tab
from tests.support.dashboard_stage import HOSTILE_HOST, DashboardStage, serving_site


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


async def test_open_pages_lead_to_the_sign_in_page_once_the_sign_in_has_ended(
    stage: DashboardStage, session: BrowserSession
) -> None:
    """The pages of a list and of a call that runs: both ask for what has changed by themselves."""
    alice = await stage.create_agent("alice")
    call = await stage.start_call(alice, "halfway")
    listed = await session.sign_in(stage.url("/calls"), await stage.create_key("alice"))
    shown = await session.open_tab(stage.url(f"/calls/{call.id}"))
    await listed.page.get_by_role("link", name=call.id).wait_for()

    left = await session.open_tab(stage.url("/audit"))
    await left.page.get_by_role("button", name="Sign out").click()
    await left.page.wait_for_url("**/ui/sign-in**")
    await stage.start_call(alice, "echo")  # what follows shows nothing of it

    for tab, path in ((shown, f"%2Fcalls%2F{call.id}"), (listed, "%2Fcalls")):
        await tab.page.bring_to_front()
        await tab.page.wait_for_url(f"**/ui/sign-in?next={path}", timeout=WAIT_MS)
        assert await tab.page.get_by_label("API key").count() == 1


async def test_a_wrong_key_is_refused_on_the_same_page(stage: DashboardStage, session: BrowserSession) -> None:
    tab = await session.open_tab(stage.url("/calls"))
    await tab.page.get_by_label("API key").fill("rbk_wrong")
    await tab.page.get_by_role("button", name="Sign in").click()

    await tab.page.get_by_role("alert").wait_for()

    assert await session.context.cookies() == []
    assert "rbk_wrong" not in await tab.page.content()


async def test_a_form_of_another_site_changes_nothing(stage: DashboardStage, session: BrowserSession) -> None:
    """Neither for someone who is signed in, nor by signing them in with the key of someone else."""
    tab = await session.sign_in(stage.url("/calls"), await stage.create_key("alice"))
    actions = ("/sign-out", "/sign-in")
    forms = [_make_form(stage.url(path), label=path, key=await stage.create_key("mallory")) for path in actions]
    statuses: dict[str, int] = {}

    async with serving_site(HOSTILE_HOST) as site:
        for policy in ("unsafe-url", "no-referrer"):  # the second one sends the Origin "null"
            site.html = f'<meta name="referrer" content="{policy}">{"".join(forms)}'
            for path in actions:
                await tab.open(site.origin)
                statuses[f"{path} {policy}"] = await _press(tab, path)

    assert set(statuses.values()) == {403}, statuses
    await tab.open(stage.url("/calls"))
    assert "alice" in await tab.page.inner_text("header")


def _make_form(url: str, *, label: str, key: str) -> str:
    return f'<form method="post" action="{url}"><input name="key" value="{key}"><button>{label}</button></form>'


async def _press(tab: Tab, label: str) -> int:
    """Press a button that sends a form. Returns the status of the response."""
    async with tab.page.expect_response(lambda response: response.request.method == "POST") as sent:
        await tab.page.get_by_role("button", name=label, exact=True).click()
    return (await sent.value).status
