"""HTTP clients that could send callbacks: POSTs per second at 64 in flight, and CPU of each POST.

Each client is used as its documentation says, with pool limits above the number in flight, so that none waits for a connection.
Ringback's sender does more than the others: it checks addresses, enforces a deadline, and reads each response for the
attempt log.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache, partial
from typing import Any, Final

import httpx
import httpx2
from yarl import URL

from ringback.domain.clock import SystemClock
from ringback.domain.ids import IdGenerator
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.sender import ADDED_HEADERS
from ringback.notifier.http.target import parse_target
from ringback.notifier.payload import build_callback_headers
from scripts.benchmarks.engine import LOOPBACK
from scripts.benchmarks.measurement import (
    Json,
    Measured,
    machine_facts,
    measuring,
    paired_ratios,
    print_progress,
    summary,
)
from scripts.benchmarks.receivers import measure_ceiling, receivers
from scripts.benchmarks.signed_post import IN_FLIGHT, SECRET, bare_session, sample_body
from scripts.benchmarks.throughput import Rounds, Run, interleaved

Headers = dict[str, str]
Post = Callable[[str, Headers, bytes], Awaitable[int]]
"""One POST; its status code."""
NO_CONTENT: Final = 204


@asynccontextmanager
async def with_ours() -> AsyncGenerator[Post]:
    sender = Http1Sender(TargetGuard(LOOPBACK), clock=SystemClock())
    target = cache(partial(parse_target, policy=LOOPBACK))

    async def post(url: str, headers: Headers, body: bytes) -> int:
        return (await sender.post(target(url), headers, body)).status_code or 0

    yield post
    await sender.aclose()


@asynccontextmanager
async def with_aiohttp() -> AsyncGenerator[Post]:
    async with bare_session() as session:

        async def post(url: str, headers: Headers, body: bytes) -> int:
            async with session.post(URL(url, encoded=True), headers=headers, data=body) as response:
                await response.read()
                return response.status

        yield post


@asynccontextmanager
async def with_httpx() -> AsyncGenerator[Post]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None, trust_env=False) as client:  # noqa: S113 - as the others
        yield lambda url, headers, body: _status(client, url, headers, body)


@asynccontextmanager
async def with_httpx2() -> AsyncGenerator[Post]:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(limits=limits, timeout=None, trust_env=False) as client:
        yield lambda url, headers, body: _status(client, url, headers, body)


async def _status(client: Any, url: str, headers: Headers, body: bytes) -> int:
    return (await client.post(url, headers=headers, content=body)).status_code


CLIENTS: Final[dict[str, Callable[[], AbstractAsyncContextManager[Post]]]] = {
    "ours": with_ours,
    "aiohttp": with_aiohttp,
    "httpx": with_httpx,
    "httpx2": with_httpx2,
}


async def clients(*, rounds: int, seconds: float) -> Json:
    async with receivers() as found:
        body = sample_body()
        reached = await measure_ceiling(found, body=body, seconds=seconds)
        print_progress(f"the receivers' maximum: {reached:,.0f}/s")
        runs = {name: _run(client, found.urls("/fast"), body) for name, client in CLIENTS.items()}
        done = await interleaved(runs, rounds=rounds, seconds=seconds)
    return {
        "machine": machine_facts(),
        "rounds": rounds,
        "in_flight": IN_FLIGHT,
        "body_bytes": len(body),
        "receivers_ceiling_per_second": round(reached),
        **_report(done),
    }


def _run(client: Callable[[], AbstractAsyncContextManager[Post]], urls: Sequence[str], body: bytes) -> Run:
    return lambda posts: _loop(client, urls, body, posts)


async def _loop(
    client: Callable[[], AbstractAsyncContextManager[Post]], urls: Sequence[str], body: bytes, posts: int
) -> Measured:
    clock = SystemClock()
    message_id = IdGenerator(clock).new_event_id()
    headers = ADDED_HEADERS | build_callback_headers(
        webhook_id="wh_benchmark", message_id=message_id, body=body, secrets=[SECRET], now=clock.now()
    )
    left = iter(range(posts))

    async def send(post: Post) -> None:
        for number in left:
            status = await post(urls[number % len(urls)], headers, body)
            if status != NO_CONTENT:
                raise RuntimeError(f"a receiver responded with {status}")

    async with client() as post:
        with measuring(posts) as measured:
            await asyncio.gather(*(send(post) for _ in range(IN_FLIGHT)))
    return measured


def _report(rounds: Rounds) -> Json:
    others = [name for name in CLIENTS if name != "aiohttp"]
    return {
        **{f"{name}_to_aiohttp_ratio": summary(paired_ratios(rounds, name, "aiohttp"), 4) for name in others},
        "per_second": {name: summary([done[name].rate for done in rounds], 0) for name in CLIENTS},
        "cpu_us_per_post": {name: summary([done[name].cpu_us for done in rounds], 1) for name in CLIENTS},
    }
