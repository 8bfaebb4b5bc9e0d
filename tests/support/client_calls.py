"""Clients of a real service in this process, and the call that their tests start."""

from typing import Any

import httpx

from ringback.client import RingbackClient, Started
from tests.support.service import PUBLIC_URL, ServiceUnderTest

ARGUMENTS = {"repo_path": "/srv/repo"}


def make_client(service: ServiceUnderTest, api_key: str | None) -> RingbackClient:
    return RingbackClient(PUBLIC_URL, api_key=api_key, transport=httpx.ASGITransport(service.app))


async def start_call(client: RingbackClient, **options: Any) -> Started:
    return await client.start_call("git", "git_log", ARGUMENTS, **options)
