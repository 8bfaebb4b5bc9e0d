"""Every page of the dashboard with contents, as people see it: in light and dark, on a narrow screen, without scripts.

Pictures of all pages are kept in the folder of --screenshots.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

import pytest
from playwright.async_api import Browser, ViewportSize

from ringback.domain.principal import Scope
from tests.support.browser_tabs import BrowserSession, Tab, open_session
from tests.support.dashboard_contents import OTHER_SESSION_ID, SESSION_ID, DashboardContents, fill_dashboard
from tests.support.dashboard_stage import DashboardStage, serving_dashboard

WIDE: Final[ViewportSize] = {"width": 1280, "height": 900}
NARROW: Final[ViewportSize] = {"width": 360, "height": 780}
OWNER: Final = "alice"
OPERATORS: Final = "operators"
ZONE: Final = "Europe/Berlin"
COLUMNS_OF_CALLS: Final = ("Call", "Status", "Tool", "Client session", "Correlation id", "Created", "Took")
TEXT_PIXELS_MIN: Final = 11
PARTS_BEYOND_TIMELINE: Final = """() => {
  const frame = document.querySelector(".timeline").getBoundingClientRect();
  const parts = [...document.querySelectorAll(".timeline rect, .timeline circle, .timeline text, .lane-label")];
  if (!parts.length) return ["nothing is drawn"];
  const isBeyond = ({ left, right }) => left < frame.left || right > Math.min(frame.right, innerWidth);
  return parts.filter((part) => part.checkVisibility() && isBeyond(part.getBoundingClientRect())).map((part) => part.outerHTML);
}"""
PLACES_IN_CHART: Final = """() => {
  const drawing = document.querySelector(".chart-drawing");
  const boxes = (selector) => [...drawing.querySelectorAll(selector)].map((part) => part.getBoundingClientRect());
  const middles = (selector) => boxes(selector).map((box) => (box.top + box.bottom) / 2);
  return {
    leftOfValues: Math.min(...boxes(".chart-values text").map((box) => box.left)),
    rightOfNewestHour: boxes(".chart-column").at(-1).right,
    heightsOfValues: middles(".chart-values text"),
    heightsOfLines: middles("line:is(.axis, .grid-line)").slice(0, boxes(".chart-values text").length),
  };
}"""
SCHEMES: Final[Sequence[Literal["light", "dark"]]] = ("light", "dark")


class Gallery:
    """A dashboard with contents."""

    def __init__(self, stage: DashboardStage, contents: DashboardContents, keys: Mapping[str, str]) -> None:
        self.stage = stage
        self.contents = contents
        self._keys = keys

    @property
    def pages(self) -> Mapping[str, Mapping[str, str]]:
        """The paths of all pages, in groups, by the name of their pictures."""
        contents = self.contents
        webhook, delivery = f"/webhooks/{contents.webhook_id}", f"/deliveries/{contents.dead_delivery_id}"
        calls = {
            "home": "",
            "calls": "/calls",
            "calls-failed": "/calls?status=failed",
            "call-resumed": f"/calls/{contents.resumed.id}",
            "call-failed": f"/calls/{contents.failed.id}",
            "call-running": f"/calls/{contents.running.id}",
            "call-with-dead-letter": f"/calls/{contents.waiting.id}",
            "sessions": "/sessions",
            "session": f"/sessions/{SESSION_ID}",
            "session-with-hostile-id": f"/sessions/{quote(OTHER_SESSION_ID, safe='')}",
        }
        callbacks = {
            "webhooks": "/webhooks",
            "webhooks-empty": "/webhooks?health=failing",
            "webhook": webhook,
            "webhook-new": "/webhooks/new",
            "webhook-edit": f"{webhook}/edit",
            "webhook-rotate-secret": f"{webhook}/rotate-secret",
            "webhook-replay": f"{webhook}/replay?dead=1",
            "webhook-remove": f"{webhook}/remove",
            "deliveries": "/deliveries",
            "deliveries-dead": "/deliveries?state=dead",
            "deliveries-redeliver": "/deliveries/redeliver?state=dead",
            "delivery-dead": delivery,
            "delivery-delivered": f"/deliveries/{contents.delivered_id}",
        }
        others = {
            "upstreams": "/upstreams",
            "upstream": "/upstreams/stage",
            "tool": "/upstreams/stage/tools/form",
            "events": "/events",
            "lookup": f"/lookup?q={contents.dead_delivery_id}",
            "lookup-nothing": "/lookup?q=nothing",
        }
        operators = {
            "operator-home": "",
            "operator-calls": "/calls",
            "operator-webhooks": "/webhooks",
            "audit": "/audit",
        }
        return {"calls": calls, "callbacks": callbacks, "others": others, OPERATORS: operators}

    async def sign_in(self, session: BrowserSession, group: str = "calls") -> Tab:
        return await session.sign_in(self.stage.url("/calls"), self._keys[OWNER if group != OPERATORS else OPERATORS])


@pytest.fixture(scope="module")
async def gallery(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Gallery]:
    async with serving_dashboard(tmp_path_factory.mktemp("gallery")) as stage:
        contents = await fill_dashboard(stage, OWNER)
        operator = await stage.create_key("olivia", frozenset({Scope.ADMIN}))
        yield Gallery(stage, contents, {OWNER: await stage.create_key(OWNER), OPERATORS: operator})


@pytest.fixture
def screenshots(request: pytest.FixtureRequest) -> Path:
    folder = Path(request.config.getoption("--screenshots") or "build/screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("group", ["calls", "callbacks", "others", OPERATORS])
async def test_pages_have_no_errors_no_barriers_and_fit_a_narrow_screen(
    gallery: Gallery, chromium: Browser, screenshots: Path, group: str
) -> None:
    found: dict[str, list[str]] = {}
    async with open_session(chromium, viewport=WIDE, timezone_id=ZONE) as session:
        tab = await gallery.sign_in(session, group)
        for name, path in gallery.pages[group].items():
            status = await tab.open(gallery.stage.url(path))
            complaints = [] if status == HTTPStatus.OK else [f"status {status}"]
            found[name] = complaints + await inspect_page(tab, screenshots / name)
            tab.errors.clear()

    assert {name: complaints for name, complaints in found.items() if complaints} == {}


async def test_on_a_narrow_screen_each_line_of_a_row_has_the_name_of_its_column(
    gallery: Gallery, chromium: Browser
) -> None:
    async with open_session(chromium, viewport=NARROW) as session:
        tab = await gallery.sign_in(session)
        await tab.open(gallery.stage.url("/calls"))

        names = await tab.page.evaluate(
            "[...document.querySelector('#calls tbody tr').cells].map((cell) => getComputedStyle(cell, '::before').content)"
        )
        roles = await tab.page.evaluate(
            "[...document.querySelectorAll('#calls tbody tr > *')].every((cell) => cell.getAttribute('role') === 'cell')"
        )

    assert names == ["none", *(f'"{name}"' for name in COLUMNS_OF_CALLS[1:])]
    assert roles is True


async def test_on_a_narrow_screen_a_timeline_is_in_sight_from_its_start_to_its_end(
    gallery: Gallery, chromium: Browser
) -> None:
    async with open_session(chromium, viewport=NARROW) as session:
        tab = await gallery.sign_in(session)
        for path in (f"/calls/{gallery.contents.waiting.id}", f"/sessions/{SESSION_ID}"):
            await tab.open(gallery.stage.url(path))
            beyond = await tab.page.evaluate(PARTS_BEYOND_TIMELINE)
            sizes = await tab.page.evaluate(
                "[...document.querySelectorAll('.timeline text')].map((text) => parseFloat(getComputedStyle(text).fontSize))"
            )

            assert (beyond, min(sizes) >= TEXT_PIXELS_MIN) == ([], True)


async def test_the_values_of_a_chart_are_in_sight_beside_its_newest_hour_at_the_height_of_their_lines(
    gallery: Gallery, chromium: Browser
) -> None:
    async with open_session(chromium, viewport=WIDE) as session:
        tab = await gallery.sign_in(session)
        await tab.open(gallery.stage.url(""))
        for viewport in (WIDE, NARROW):
            await tab.page.set_viewport_size(viewport)
            places = await tab.page.evaluate(PLACES_IN_CHART)

            assert places["leftOfValues"] >= 0
            assert places["rightOfNewestHour"] <= viewport["width"]
            assert places["heightsOfValues"] == pytest.approx(places["heightsOfLines"], abs=3)


async def test_the_sign_in_page_has_no_errors_no_barriers_and_fits_a_narrow_screen(
    gallery: Gallery, chromium: Browser, screenshots: Path
) -> None:
    async with open_session(chromium, viewport=WIDE) as session:
        tab = await session.open_tab(gallery.stage.url("/sign-in"))

        assert await inspect_page(tab, screenshots / "sign-in") == []


async def test_times_are_shown_in_utc_on_each_page_once_a_viewer_says_so(gallery: Gallery, chromium: Browser) -> None:
    async with open_session(chromium, viewport=WIDE, timezone_id="Asia/Tokyo") as session:
        tab = await gallery.sign_in(session, "calls")
        await tab.open(gallery.stage.url("/calls"))
        instant = tab.page.locator("main time").first
        assert "UTC" not in await instant.inner_text()
        await tab.page.get_by_role("button", name="Show times in UTC").press("Enter")
        assert "UTC" in await instant.inner_text()
        await tab.open(gallery.stage.url("/sessions"))

        assert "UTC" in await tab.page.locator("main time").first.inner_text()
        await tab.page.get_by_role("button", name="Show times in Asia/Tokyo").click()
        assert "UTC" not in await tab.page.locator("main time").first.inner_text()
        assert await tab.list_complaints() == []


async def inspect_page(tab: Tab, picture: Path) -> list[str]:
    """What is wrong with the page that a tab shows, in each scheme and width. Takes its pictures on the way."""
    found: list[str] = []
    for scheme in SCHEMES:
        await tab.page.emulate_media(color_scheme=scheme)
        for width, viewport in (("wide", WIDE), ("narrow", NARROW)):
            await tab.page.set_viewport_size(viewport)
            await tab.page.screenshot(path=f"{picture}-{width}-{scheme}.png", full_page=True)
            if (pixels := await tab.measure_overflow()) > 0:
                found.append(f"{pixels} pixels too wide on a {width} screen")
        found += [f"{scheme}: {barrier}" for barrier in await tab.find_barriers()]
    await tab.page.set_viewport_size(WIDE)
    return found + await tab.list_complaints()


async def test_lists_and_calls_are_readable_without_scripts(gallery: Gallery, chromium: Browser) -> None:
    contents = gallery.contents
    async with open_session(chromium, java_script_enabled=False) as session:
        tab = await gallery.sign_in(session)

        await tab.page.get_by_role("link", name=contents.running.id).wait_for()
