"""The session managers of the endpoints: what a request meets while the service ends."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from ringback.domain.errors import EndpointUnavailable
from ringback.mcp_server.endpoint_supervisor import EndpointSupervisor
from ringback.mcp_server.request_context import Endpoint
from ringback.mcp_server.session_manager import BoundedSessionManager
from tests.support.clock import FakeClock

GIT = Endpoint(upstream="git")


class FakeManager:
    """A session manager without sessions."""

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        yield

    async def extend_used_sessions(self) -> None:
        await FakeClock().sleep(3600)


async def test_a_request_after_the_end_of_its_endpoint_gets_503() -> None:
    """A manager that has ended raises an error of the SDK, which would be a 500."""
    supervisor = EndpointSupervisor(
        lambda _: cast("BoundedSessionManager", FakeManager()), list_upstreams=lambda: ["git"], clock=FakeClock()
    )

    async def use(manager: BoundedSessionManager) -> BoundedSessionManager:
        return manager

    assert await supervisor.use_manager(GIT, use) is not None
    await supervisor.aclose()

    with pytest.raises(EndpointUnavailable):
        await supervisor.use_manager(GIT, use)
