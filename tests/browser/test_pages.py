"""Every page of the dashboard with contents, as people see it: in light and dark, on a narrow screen, without scripts.

Pictures of all pages are kept in the folder of --screenshots.
"""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.async_api import Browser

from tests.support.browser_tabs import BrowserSession, Tab, open_session
from tests.support.dashboard_contents import DashboardContents, fill_dashboard
from tests.support.dashboard_stage import DashboardStage, serving_dashboard

WIDE: Final = {"width": 1280, "height": 900}
NARROW: Final = {"width": 360, "height": 780}
ColorScheme = Literal["light", "dark"]


class Gallery:
    """A dashboard with contents."""

    def __init__(self, stage: DashboardStage, contents: DashboardContents, key: str) -> None:
        self.stage = stage
        self.contents = contents
        self.key = key

    @property
    def pages(self) -> Mapping[str, str]:
        """The paths of all pages by the name of their pictures."""
        return {
            "home": "",
            "calls": "/calls",
        }

    async def sign_in(self, session: BrowserSession) -> Tab:
        return await session.sign_in(self.stage.url("/calls"), self.key)


@pytest.fixture(scope="module")
async def gallery(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Gallery]:
    async with serving_dashboard(tmp_path_factory.mktemp("gallery")) as stage:
        contents = await fill_dashboard(stage, "alice")
        yield Gallery(stage, contents, await stage.create_key("alice"))


@pytest.fixture
def screenshots(request: pytest.FixtureRequest) -> Path:
    folder = Path(request.config.getoption("--screenshots") or "build/screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_have_no_barriers_and_no_errors(
    gallery: Gallery, chromium: Browser, screenshots: Path, scheme: ColorScheme
) -> None:
    found: dict[str, list[str]] = {}
    async with open_session(chromium, color_scheme=scheme, viewport=WIDE) as session:
        tab = await session.open_tab(gallery.stage.url("/sign-in"))
        await tab.page.screenshot(path=screenshots / f"sign-in-{scheme}.png", full_page=True)
        found["sign-in"] = [*await tab.find_barriers(), *await tab.list_complaints()]
        tab = await gallery.sign_in(session)
        for name, path in gallery.pages.items():
            assert await tab.open(gallery.stage.url(path)) == 200, name
            await tab.page.screenshot(path=screenshots / f"{name}-{scheme}.png", full_page=True)
            found[name] = [*await tab.find_barriers(), *await tab.list_complaints()]
            tab.errors.clear()

    assert {name: complaints for name, complaints in found.items() if complaints} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_page_is_wider_than_a_narrow_screen(
    gallery: Gallery, chromium: Browser, screenshots: Path, scheme: ColorScheme
) -> None:
    overflows: dict[str, int] = {}
    async with open_session(chromium, color_scheme=scheme, viewport=NARROW, is_mobile=True) as session:
        tab = await gallery.sign_in(session)
        for name, path in gallery.pages.items():
            await tab.open(gallery.stage.url(path))
            overflows[name] = await tab.measure_overflow()
            await tab.page.screenshot(path=screenshots / f"{name}-narrow-{scheme}.png", full_page=True)

    assert {name: pixels for name, pixels in overflows.items() if pixels > 0} == {}


async def test_lists_and_calls_are_readable_without_scripts(gallery: Gallery, chromium: Browser) -> None:
    contents = gallery.contents
    async with open_session(chromium, java_script_enabled=False) as session:
        tab = await gallery.sign_in(session)

        await tab.page.get_by_role("link", name=contents.running.id).wait_for()
