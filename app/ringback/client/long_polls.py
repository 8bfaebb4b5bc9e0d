"""Requests that wait in the service: how many at the same time, and how long the proxies in between let them wait."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from math import inf
from typing import Any, Final

import httpx

LONG_POLLS_MAX: Final = 100
"""Waiting requests at the same time: half of the client's connections, so that other requests never wait for them."""
PROXY_TIMEOUT_SECONDS_MIN: Final = 5.0
"""A 504 that comes sooner says that the service does not respond, and nothing about the length of waits."""
PROXY_TIMEOUT_FRACTION: Final = 0.8
"""Of the timeout after which a proxy responded with 504: the next wait ends before the proxy does."""


class LongPolls:
    def __init__(self) -> None:
        self._places = asyncio.Semaphore(LONG_POLLS_MAX)
        self._longest_wait_seconds = inf
        """What the proxies in between allow, as far as is known."""

    @asynccontextmanager
    async def hold_place(self, wait_seconds: float | None) -> AsyncGenerator[float | None]:
        """Hold a place among the waiting requests. Yields what is left of the wait when one is free: none after all of it."""
        if not wait_seconds:
            yield wait_seconds
            return
        ends_at = asyncio.get_running_loop().time() + wait_seconds
        is_free_now = not self._places.locked()
        try:
            async with asyncio.timeout(None if is_free_now else wait_seconds):
                await self._places.acquire()
        except TimeoutError:
            yield 0.0
            return
        try:
            yield wait_seconds if is_free_now else max(0.0, ends_at - asyncio.get_running_loop().time())
        finally:
            self._places.release()

    def with_allowed_wait(
        self, members: Mapping[str, Any] | None, remaining_seconds: float | None
    ) -> Mapping[str, Any] | None:
        """The parameters or the body, with no longer wait than is left and than the proxies in between allow."""
        if members is None or remaining_seconds is None or members.get("wait_seconds") is None:
            return members
        return {**members, "wait_seconds": min(remaining_seconds, self._longest_wait_seconds)}

    def observe_proxy_timeout(self, response: httpx.Response, seconds: float) -> None:
        """Ask for shorter waits from now on if a proxy ended this one after `seconds`."""
        if response.status_code == HTTPStatus.GATEWAY_TIMEOUT and seconds >= PROXY_TIMEOUT_SECONDS_MIN:
            self._longest_wait_seconds = min(self._longest_wait_seconds, seconds * PROXY_TIMEOUT_FRACTION)
