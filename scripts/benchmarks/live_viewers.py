"""What open dashboards cost calls and callbacks: the loop of `full_loop` with a hundred live pages, and without any.

One service in its own process runs all variants in turns. Each viewer is a browser's connection to the live list: it reads what
the service sends, and connects again as a browser does. CPU is that of the service's process.

same_list  all viewers see the list of calls of the principal whose calls run
own_lists  each viewer is another principal, so the service follows a hundred lists
same_home, own_homes  the same with the first page
"""

import asyncio
import html
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aiohttp

from ringback.domain.principal import Scope
from scripts.benchmarks.dashboard_keys import ENGINE_KEYS, create_key
from scripts.benchmarks.databases import Databases
from scripts.benchmarks.full_loop import CONCURRENCY, Callbacks, Client, Run
from scripts.benchmarks.measurement import Json, percentile, print_progress, summary
from scripts.benchmarks.service import Service, python_process, ringback, wait_until_responding
from scripts.ports import free_port

VIEWERS: Final = 100
QUICK_VIEWERS: Final = 5
WARM_UP: Final = 200
IDLE_SECONDS: Final = 5.0
QUICK_IDLE_SECONDS: Final = 0.5
AGENT: Final = "agent"
NONE, SAME_LIST, OWN_LISTS, SAME_HOME, OWN_HOMES = "none", "same_list", "own_lists", "same_home", "own_homes"
VARIANTS: Final = (NONE, SAME_LIST, OWN_LISTS, SAME_HOME, OWN_HOMES)
LISTS_PAGE, HOME_PAGE = "/calls", ""
_STREAM: Final = re.compile(r'sse-connect="([^"]+)"')
_FRAME_END: Final = b"\n\n"


class Viewers:
    """Browsers whose pages are live. Counts what they got."""

    def __init__(self, browsers: Sequence[aiohttp.ClientSession], service: Service, *, page: str) -> None:
        """`page`: its path below that of the dashboard."""
        self._browsers = browsers
        self._service = service
        self._page = page
        self.frames = 0
        self.bytes = 0

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        paths = [await _find_stream(browser, self._service, self._page) for browser in self._browsers]
        streams = [await self._connect(browser, path) for browser, path in zip(self._browsers, paths, strict=True)]
        opened = zip(self._browsers, paths, streams, strict=True)
        tasks = [asyncio.create_task(self._watch(browser, path, stream)) for browser, path, stream in opened]
        try:
            yield
        finally:
            failed = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in failed:
            task.result()

    async def _connect(self, browser: aiohttp.ClientSession, path: str) -> aiohttp.ClientResponse:
        response = await browser.get(f"{self._service.url}{path}")
        response.raise_for_status()
        return response

    async def _watch(self, browser: aiohttp.ClientSession, path: str, stream: aiohttp.ClientResponse) -> None:
        """A browser connects again to the stream alone: the page stays open."""
        while True:
            async with stream:
                async for chunk in stream.content.iter_any():
                    self.bytes += len(chunk)
                    self.frames += chunk.count(_FRAME_END)
            stream = await self._connect(browser, path)


async def _find_stream(browser: aiohttp.ClientSession, service: Service, page: str) -> str:
    async with browser.get(f"{service.url}/ui{page}") as response:
        text = await response.text()
    found = _STREAM.search(text)
    if found is None:
        raise RuntimeError(f"the page is not live: {text[:2000]}")
    return html.unescape(found[1])


async def live_viewers(made: Databases, *, rounds: int, seconds: float, quick: bool) -> Json:
    count = QUICK_VIEWERS if quick else VIEWERS
    async with AsyncExitStack() as stack:
        service, operator = await _start_service(stack, await stack.enter_async_context(made.empty_database()))
        callbacks = Callbacks()
        await stack.enter_async_context(callbacks.receiving())
        client = Client(service, await _open_agent(stack, service, operator), callbacks)
        same = await _open_browsers(stack, service, operator, [AGENT] * count)
        own = await _open_browsers(stack, service, operator, [f"viewer-{n}" for n in range(count)])
        viewers = {
            SAME_LIST: Viewers(same, service, page=LISTS_PAGE),
            OWN_LISTS: Viewers(own, service, page=LISTS_PAGE),
            SAME_HOME: Viewers(same, service, page=HOME_PAGE),
            OWN_HOMES: Viewers(own, service, page=HOME_PAGE),
        }
        warm = await client.run_loops(loops=WARM_UP, at_once=CONCURRENCY)
        loops = max(WARM_UP, round(warm.rate * seconds))
        done = [await _run_round(client, viewers, number, loops=loops) for number in range(rounds)]
        idle_seconds = QUICK_IDLE_SECONDS if quick else IDLE_SECONDS
        idle = {name: await _measure_idle(service, viewers.get(name), idle_seconds) for name in VARIANTS}
    return {
        "viewers": count,
        "at_once": CONCURRENCY,
        "cpu_ratio": {name: summary([each[name].cpu_us / each[NONE].cpu_us for each in done]) for name in viewers},
        "loops_per_second_ratio": {
            name: summary([each[name].rate / each[NONE].rate for each in done]) for name in viewers
        },
        "loop_p99_ratio": {
            name: summary([percentile(each[name].loops, 0.99) / percentile(each[NONE].loops, 0.99) for each in done], 2)
            for name in viewers
        },
        "cpu_us_per_call": {name: summary([each[name].cpu_us for each in done], 0) for name in VARIANTS},
        "idle_cpu_percent": idle,
        "received": {
            name: {"frames": each.frames, "megabytes": round(each.bytes / 1e6, 1)} for name, each in viewers.items()
        },
    }


async def _run_round(client: Client, viewers: Mapping[str, Viewers], number: int, *, loops: int) -> dict[str, Run]:
    done: dict[str, Run] = {}
    for name in VARIANTS if number % 2 == 0 else VARIANTS[::-1]:
        if name == NONE:
            done[name] = await client.run_loops(loops=loops, at_once=CONCURRENCY)
            continue
        async with viewers[name].watching():
            done[name] = await client.run_loops(loops=loops, at_once=CONCURRENCY)
    print_progress("  ".join(f"{name}: {run.rate:,.0f}/s {run.cpu_us:,.0f} µs" for name, run in done.items()))
    return done


async def _measure_idle(service: Service, viewers: Viewers | None, seconds: float) -> float:
    """The share of a core that the service uses while nothing happens."""
    async with AsyncExitStack() as stack:
        if viewers is not None:
            await stack.enter_async_context(viewers.watching())
        cpu, began = service.cpu_seconds(), time.perf_counter()
        await asyncio.sleep(seconds)
        return round((service.cpu_seconds() - cpu) / (time.perf_counter() - began) * 100, 1)


# -- service and clients ----------------------------------------------------------------------------------------------------


async def _start_service(stack: AsyncExitStack, database_url: str) -> tuple[Service, str]:
    """The service, and an operator's key."""
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="ringback-bench-")))
    upstream_port = free_port()
    upstream_url = f"http://127.0.0.1:{upstream_port}/mcp"
    upstream = python_process("scripts.benchmarks.lean_upstream", str(upstream_port), log=folder / "upstream")
    await stack.enter_async_context(upstream)
    settings = {
        "RINGBACK_DATABASE_URL": database_url,
        "RINGBACK_SECRET_KEYS": ENGINE_KEYS,
        "RINGBACK_AUTH": "keys",
        "RINGBACK_PEER_CONNECTIONS_MAX": "1000",
    }
    operator = await create_key(database_url, "operator", Scope.ADMIN)
    stage: dict[str, Any] = {"url": upstream_url, "ringback": {"max_concurrent": 256}}
    started = ringback(folder, upstreams={"stage": stage}, upstream_url=upstream_url, environment=settings)
    service = await stack.enter_async_context(started)
    await wait_until_responding(f"{service.url}/healthz")
    return service, operator


async def _open_agent(stack: AsyncExitStack, service: Service, operator: str) -> aiohttp.ClientSession:
    key = await _request_key(service, operator, AGENT)
    connector = aiohttp.TCPConnector(limit=0)
    return await stack.enter_async_context(
        aiohttp.ClientSession(connector=connector, headers={"Authorization": f"Bearer {key}"})
    )


async def _open_browsers(
    stack: AsyncExitStack, service: Service, operator: str, principals: Sequence[str]
) -> Sequence[aiohttp.ClientSession]:
    """A principal's sign-ins are limited, so its viewers are tabs of one browser."""
    browsers = {each: await _open_browser(stack, service, operator, each) for each in dict.fromkeys(principals)}
    return [browsers[principal] for principal in principals]


async def _open_browser(
    stack: AsyncExitStack, service: Service, operator: str, principal: str
) -> aiohttp.ClientSession:
    key = await _request_key(service, operator, principal)
    jar = aiohttp.CookieJar(unsafe=True)  # keeps cookies of hosts without a name
    browser = await stack.enter_async_context(
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), cookie_jar=jar, timeout=aiohttp.ClientTimeout(total=None)
        )
    )
    headers = {"Origin": service.url, "Sec-Fetch-Site": "same-origin"}
    async with browser.post(f"{service.url}/ui/sign-in", data={"key": key}, headers=headers) as response:
        response.raise_for_status()
    return browser


async def _request_key(service: Service, operator: str, principal: str) -> str:
    headers = {"Authorization": f"Bearer {operator}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(f"{service.url}/v1/keys", json={"principal": principal}) as response,
    ):
        response.raise_for_status()
        return str((await response.json())["key"])
