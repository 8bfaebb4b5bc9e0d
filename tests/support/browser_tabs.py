"""Tabs of a real Chromium that keep what their pages report: errors on the console, and violations of the page's policy (CSP).

async with launch_chromium() as chromium, open_session(chromium) as session:
    tab = await session.open_tab(url)
    ...
    assert tab.complaints == []
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright

CHROMIUM_VARIABLE: Final = "RINGBACK_TEST_CHROMIUM"
"""The path of the browser, which scripts/test --browser finds or installs."""
CHROMIUM_ARGUMENTS: Final = (
    *("--disable-gpu", "--disable-quic", "--no-first-run"),
    # It connects to this machine only: no updates, no lists of its vendor, no name besides those of the tests.
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--host-resolver-rules=MAP *.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_AXE: Final = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
"""axe-core, which finds barriers for people who use keyboards, screen readers or other colours."""
WAIT_MS: Final = 30_000
"""Ends a wait for a page that does not come. A page takes 0.1 s."""
_REPORT_VIOLATIONS: Final = """
    window.policyViolations = [];
    document.addEventListener("securitypolicyviolation", (event) =>
        window.policyViolations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
"""


CLOSE_SECONDS: Final = 10.0


@dataclass(slots=True)
class Tab:
    page: Page
    errors: list[str] = field(default_factory=list[str])
    """Errors and warnings on the console, and uncaught exceptions."""

    async def open(self, url: str) -> int:
        """Open a page. Returns its HTTP status."""
        response = await self.page.goto(url)
        assert response is not None
        return response.status

    async def list_complaints(self) -> list[str]:
        """What the browser reported since the tab was opened, and what this page's policy refused."""
        refused: list[str] = await self.page.evaluate("window.policyViolations ?? []")
        return [*self.errors, *refused]

    async def find_barriers(self) -> list[str]:
        """The rules of accessibility that this page violates, each with its elements."""
        await self.page.evaluate(_AXE)
        found: list[dict[str, Any]] = (await self.page.evaluate("axe.run(document)"))["violations"]
        return [f"{each['id']}: {[node['html'][:200] for node in each['nodes']]}" for each in found]

    async def measure_overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        root = "document.documentElement"
        return int(await self.page.evaluate(f"{root}.scrollWidth - {root}.clientWidth"))


@dataclass(slots=True)
class BrowserSession:
    """Cookies and settings of one person's browser."""

    context: BrowserContext

    async def open_tab(self, url: str | None = None) -> Tab:
        tab = Tab(await self.context.new_page())

        def note_message(message: ConsoleMessage) -> None:
            if message.type in {"error", "warning"}:
                tab.errors.append(f"{tab.page.url}: {message.text}")

        tab.page.on("console", note_message)
        tab.page.on("pageerror", lambda error: tab.errors.append(f"{tab.page.url}: {error}"))
        if url is not None:
            await tab.open(url)
        return tab

    async def sign_in(self, url: str, key: str) -> Tab:
        """Open a page of the dashboard and sign in on the way to it."""
        tab = await self.open_tab(url)
        await tab.page.get_by_label("API key").fill(key)
        await tab.page.get_by_role("button", name="Sign in").click()
        await tab.page.wait_for_url(url)
        return tab


@asynccontextmanager
async def launch_chromium() -> AsyncGenerator[Browser]:
    """Raises `AssertionError` without a Chromium: the tests that need one run only if they are asked for."""
    path = os.environ.get(CHROMIUM_VARIABLE) or shutil.which("chromium")
    assert path is not None, "Chromium is missing; scripts/test --browser installs it or says how to"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path,
            args=CHROMIUM_ARGUMENTS,
            chromium_sandbox=os.geteuid() != 0,  # Chromium refuses to sandbox root's pages
        )
        try:
            yield browser
        finally:
            await browser.close()


async def _close_or_leave(context: BrowserContext) -> None:
    """Chromium sometimes never reports that a context is closed. It ends with the browser."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(context.close(), CLOSE_SECONDS)


@asynccontextmanager
async def open_session(browser: Browser, **options: Any) -> AsyncGenerator[BrowserSession]:
    """A session without cookies. `options` are those of Playwright's contexts: `color_scheme`, `viewport` and others."""
    context = await browser.new_context(ignore_https_errors=True, **options)
    context.set_default_timeout(WAIT_MS)
    if options.get("java_script_enabled", True):
        await context.add_init_script(_REPORT_VIOLATIONS)
    try:
        yield BrowserSession(context)
    finally:
        await _close_or_leave(context)
