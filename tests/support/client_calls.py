"""Clients of a real service in this process, the call that their tests start, and a wait for its upstreams."""

import asyncio
from typing import Any

import httpx

from ringback.client import RingbackClient, Started
from tests.support.limits import WAIT_SECONDS, growing_pauses
from tests.support.service import PUBLIC_URL, ServiceUnderTest

ARGUMENTS = {"repo_path": "/srv/repo"}


def make_client(service: ServiceUnderTest, api_key: str | None) -> RingbackClient:
    return RingbackClient(PUBLIC_URL, api_key=api_key, transport=httpx.ASGITransport(service.app))


async def start_call(client: RingbackClient, **options: Any) -> Started:
    return await client.start_call("git", "git_log", ARGUMENTS, **options)


async def wait_for_states(client: RingbackClient, **states: str) -> None:
    """Poll until the upstreams, and no others, have these states."""
    async with asyncio.timeout(WAIT_SECONDS):
        for pause in growing_pauses():
            if {each.name: each.state for each in await client.upstreams()} == states:
                return
            await asyncio.sleep(pause)
