"""All hostile clients at once, in their own process: `hostile_clients.py SPEC`, which is forked.

Prints `ready` when everything is registered, runs until its standard input ends, and prints its counts as one JSON object.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx
import uvloop

from scripts.soak_runs import hostile_callers as callers
from scripts.soak_runs import hostile_connections as connections
from scripts.soak_runs import hostile_readers as readers

NICENESS: Final = 10
"""The hostile clients run at low priority, so that they affect the service by their requests and not by their CPU."""
REQUEST_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05
PRINCIPAL_BY_KIND: Final = {
    callers.NAMES: "names",
    callers.HELD: "suspended",
    callers.CORRELATED: "correlated",
    callers.GARBLING: "garbling",
    callers.FLOODING: "flooding",
    callers.FLOODING_STREAMS: "streaming",
    readers.UNREAD_RESULTS: "reading",
    callers.FILTERS: "archive",
    callers.CURSORS: "archive",
}
KINDS: Final = (*connections.KINDS, *callers.KINDS, readers.UNREAD_RESULTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileSpec:
    url: str
    port: int
    keys: Mapping[str, str]
    """By principal."""
    without: Sequence[str] = ()
    """The kinds that do nothing."""
    webhooks: int = callers.WEBHOOKS
    timeout_seconds: float = callers.TIMEOUT_SECONDS

    def is_active(self, kind: str) -> bool:
        return kind not in self.without


async def main(spec: HostileSpec) -> None:
    done = {kind: Counter[str]() for kind in KINDS}
    server = await asyncio.get_running_loop().create_server(_RespondingProtocol, "127.0.0.1", 0)
    receiver_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
    async with contextlib.AsyncExitStack() as stack:
        crowd = {
            kind: callers.Caller(
                await stack.enter_async_context(_client(spec, kind)),
                receiver_url,
                done[kind],
                timeout_seconds=spec.timeout_seconds,
            )
            for kind in (*callers.KINDS, readers.UNREAD_RESULTS)
        }
        await crowd[callers.CORRELATED].request("GET", "/openapi.json")  # the service creates the document once
        await crowd[callers.CORRELATED].register_correlated(spec.webhooks)
        paths = await readers.make_large_results(crowd[readers.UNREAD_RESULTS])
        print("ready", flush=True)
        os.nice(NICENESS)  # not before: beside busy processes, what is prepared at low priority takes minutes
        key = spec.keys[PRINCIPAL_BY_KIND[readers.UNREAD_RESULTS]]
        work = [
            *(
                asyncio.create_task(callers.run_hostile_caller(kind, crowd[kind]))
                for kind in filter(spec.is_active, callers.KINDS)
            ),
            *(
                asyncio.create_task(readers.read_nothing(paths, key, spec.port, done[kind]))
                for kind in filter(spec.is_active, [readers.UNREAD_RESULTS])
            ),
            *(
                asyncio.create_task(connections.run_hostile_connections(kind, spec.port, done[kind]))
                for kind in filter(spec.is_active, connections.KINDS)
            ),
        ]
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await _wait_for_first_responses([done[kind] for kind in filter(spec.is_active, callers.KINDS)])
        for task in work:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
    print(json.dumps(done), flush=True)


async def _wait_for_first_responses(done: Sequence[Counter[str]]) -> None:
    """A short run on a busy machine ends before each kind has had a response, and would show nothing of that kind."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REQUEST_SECONDS):
            while not all(counts["requests"] for counts in done):  # noqa: ASYNC110 - counters set no event
                await asyncio.sleep(POLL_SECONDS)


def _client(spec: HostileSpec, kind: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {spec.keys[PRINCIPAL_BY_KIND[kind]]}"}
    limits = httpx.Limits(max_connections=4)
    return httpx.AsyncClient(
        base_url=spec.url, headers=headers, trust_env=False, timeout=REQUEST_SECONDS, limits=limits
    )


class _RespondingProtocol(asyncio.Protocol):
    """Responds with 204 whenever data arrives: the hostile clients' callbacks are small and not read."""

    def __init__(self) -> None:
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for _ in range(data.count(b"\r\n\r\n")):
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


if __name__ == "__main__":
    uvloop.run(main(HostileSpec(**json.loads(sys.argv[1]))))
