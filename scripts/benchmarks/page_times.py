"""The time of each page of the dashboard beside few and beside many calls, from two services that take turns.

A time is from the request to the last byte of the response on one loopback connection, so it includes a millisecond that is
not the service's. `viewer` sees the rows of one principal, who owns all calls of the crowd; `operator` those of all.
"""

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx

from ringback.domain.principal import Scope
from scripts.benchmarks.crowds import FIRST_NUMBER, Crowd, fill
from scripts.benchmarks.dashboard_keys import ENGINE_KEYS, create_key
from scripts.benchmarks.databases import Databases
from scripts.benchmarks.measurement import Json, percentile, print_progress
from scripts.benchmarks.service import ringback
from scripts.benchmarks.signed_post import PRINCIPAL

FEW: Final = Crowd(webhooks=1_000, calls=1_000, deliveries=1_000)
MANY: Final = Crowd(webhooks=10_000, calls=1_000_000, deliveries=1_000_000)
QUICK_FEW: Final = Crowd(webhooks=10, calls=10, deliveries=10)
QUICK_MANY: Final = Crowd(webhooks=100, calls=1_000, deliveries=1_000)
REQUESTS: Final = 20
"""To each page in a round. The first round also opens connections and plans statements, and is not counted."""
GOAL_MS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A service beside a crowd, and a browser for each viewer."""

    browsers: Mapping[str, httpx.AsyncClient]
    pages: Mapping[str, str]
    """Paths by the name of the page."""


async def page_times(made: Databases, *, rounds: int, quick: bool) -> Json:
    crowds = {"few": QUICK_FEW, "many": QUICK_MANY} if quick else {"few": FEW, "many": MANY}
    async with AsyncExitStack() as stack:
        dashboards = {name: await _open(stack, made, crowd) for name, crowd in crowds.items()}
        taken = await _measure(dashboards, rounds=rounds)
    slowest = max(percentile(sizes["many"], 0.95) for sizes in taken.values()) * 1000
    return {
        **{name: asdict(crowd) for name, crowd in crowds.items()},
        "requests_of_each_page": len(next(iter(taken.values()))["many"]),
        "goal_ms": GOAL_MS,
        "slowest_page_p95_ms": round(slowest, 1),
        "pages": {name: _report(sizes["few"], sizes["many"]) for name, sizes in taken.items()},
    }


async def _measure(dashboards: Mapping[str, Dashboard], *, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each request, by page and crowd."""
    pages = [(viewer, page) for viewer in ("viewer", "operator") for page in dashboards["few"].pages]
    taken: dict[str, dict[str, list[float]]] = {f"{page} ({viewer})": {"few": [], "many": []} for viewer, page in pages}
    for number in range(rounds + 1):
        order = list(dashboards) if number % 2 else list(dashboards)[::-1]
        for viewer, page in pages:
            for size in order:
                seconds = await _request_page(dashboards[size], viewer, page)
                if number:
                    taken[f"{page} ({viewer})"][size].extend(seconds)
    return taken


async def _request_page(dashboard: Dashboard, viewer: str, page: str) -> Sequence[float]:
    seconds: list[float] = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        response = await dashboard.browsers[viewer].get(f"/ui{dashboard.pages[page]}")
        seconds.append(time.perf_counter() - began)
        if response.is_error:  # a lookup of one thing leads to its page
            raise RuntimeError(f"{page} ({viewer}): {response.status_code} {response.text[:500]}")
    return seconds


def _report(few: Sequence[float], many: Sequence[float]) -> Json:
    return {
        "p50_ms": round(percentile(many, 0.50) * 1000, 1),
        "p95_ms": round(percentile(many, 0.95) * 1000, 1),
        "p50_ms_of_few": round(percentile(few, 0.50) * 1000, 1),
        "ratio_of_p50": round(percentile(many, 0.50) / percentile(few, 0.50), 2),
    }


# -- services ---------------------------------------------------------------------------------------------------------------


async def _open(stack: AsyncExitStack, made: Databases, crowd: Crowd) -> Dashboard:
    url = await stack.enter_async_context(made.empty_database())
    began = time.perf_counter()
    call_id = await fill(url, crowd)
    print_progress(f"filled with {asdict(crowd)} in {time.perf_counter() - began:.1f} s")
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="ringback-bench-")))
    settings = {"RINGBACK_DATABASE_URL": url, "RINGBACK_SECRET_KEYS": ENGINE_KEYS, "RINGBACK_AUTH": "keys"}
    keys = {
        "viewer": await create_key(url, PRINCIPAL, Scope.READ, Scope.CALLS, Scope.WEBHOOKS),
        "operator": await create_key(url, "operator", Scope.ADMIN),
    }
    service = await stack.enter_async_context(ringback(folder, upstreams={}, upstream_url="", environment=settings))
    browsers = {name: await stack.enter_async_context(sign_in(service.url, key)) for name, key in keys.items()}
    return Dashboard(
        browsers=browsers, pages=_list_pages(call_id, await _read_delivery(service.url, keys["viewer"], call_id))
    )


async def _read_delivery(url: str, key: str, call_id: str) -> Mapping[str, str]:
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as http:
        response = await http.get("/v1/deliveries", params={"call_id": call_id})
        return response.raise_for_status().json()["deliveries"][0]


def _list_pages(call_id: str, delivery: Mapping[str, str]) -> dict[str, str]:
    return {
        "home": "",
        "calls": "/calls",
        "calls with a status that none has": "/calls?status=working",
        "calls that failed": "/calls?outcome=failure",
        "calls that ran again": "/calls?min_runs=2",
        "calls with three attempts of a delivery": "/calls?min_delivery_attempts=3",
        "calls with a correlation id that all have": "/calls?correlation_id=report-2026-11",
        "calls that ran more than once": "/calls?min_runs=2",
        "calls with a retried callback": "/calls?min_delivery_attempts=2",
        "calls of a tool that none has": "/calls?tool=nothing",
        "calls with the beginning of an id": f"/calls?id_prefix={call_id[:12]}",
        "call": f"/calls/{call_id}",
        "sessions": "/sessions",
        "session": f"/sessions/crowd-{FIRST_NUMBER + 1}",
        "lookup of a correlation id": "/lookup?q=report-2026-11",
        "lookup of nothing": "/lookup?q=nothing",
        "webhooks": "/webhooks",
        "webhooks that fail": "/webhooks?health=failing",
        "webhook": f"/webhooks/{delivery['webhook_id']}",
        "deliveries": "/deliveries",
        "deliveries that are dead": "/deliveries?state=dead",
        "delivery": f"/deliveries/{delivery['id']}",
        "events": "/events",
    }


@asynccontextmanager
async def sign_in(url: str, key: str) -> AsyncGenerator[httpx.AsyncClient]:
    """A browser that is signed in, with one connection that stays open."""
    async with httpx.AsyncClient(base_url=url, timeout=60.0, trust_env=False) as browser:
        headers = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
        response = await browser.post("/ui/sign-in", data={"key": key}, headers=headers)
        if not response.has_redirect_location:
            raise RuntimeError(f"sign-in: {response.status_code} {response.text[:500]}")
        yield browser
