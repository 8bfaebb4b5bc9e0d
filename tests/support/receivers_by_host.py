"""Receivers by host: each responds as the test says, and every POST is recorded.

board = Switchboard()
board.says("agent.example", 500)
dispatcher = engine.dispatcher(board)
"""

import asyncio
from collections import defaultdict
from typing import Any, Final

import httpx
import orjson

from tests.support.engine import WAIT_SECONDS

CONNECTION_REFUSED: Final = "no answer"
"""In place of a status: the connection is refused."""
TIMEOUT: Final = "timeout"


class ReceiversByHost:
    def __init__(self, default: int | str = 204) -> None:
        self.posts: list[httpx.Request] = []
        self.in_flight: defaultdict[str, int] = defaultdict(int)
        self.in_flight_max: defaultdict[str, int] = defaultdict(int)
        self._default = default
        self._responses: dict[str, int | str] = {}
        self._held: dict[str, asyncio.Event] = {}
        self._post_arrived = asyncio.Event()

    def set_response(self, host: str, answer: int | str) -> None:
        """Set the host's status, or a failure, for POSTs from now on."""
        self._responses[host] = answer

    def hold_responses(self, host: str) -> None:
        """Make the host hold every POST from now on until it is released."""
        self._held[host] = asyncio.Event()

    def release_responses(self, host: str) -> None:
        self._held.pop(host).set()

    async def wait_for_posts(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.posts) < count:
                self._post_arrived.clear()
                await self._post_arrived.wait()

    def bodies(self, host: str | None = None) -> list[dict[str, Any]]:
        """The sent POSTs, in order."""
        return [orjson.loads(post.content) for post in self.posts if host in {None, post.url.host}]

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        self.posts.append(request)
        self._post_arrived.set()
        self.in_flight[host] += 1
        self.in_flight_max[host] = max(self.in_flight_max[host], self.in_flight[host])
        try:
            if host in self._held:
                await self._held[host].wait()
            return _make_response(self._responses.get(host, self._default), request)
        finally:
            self.in_flight[host] -= 1


def _make_response(said: int | str, request: httpx.Request) -> httpx.Response:
    if said == CONNECTION_REFUSED:
        raise httpx.ConnectError("nobody is there", request=request)
    if said == TIMEOUT:
        raise httpx.ReadTimeout("no answer in time", request=request)
    return httpx.Response(int(said))
