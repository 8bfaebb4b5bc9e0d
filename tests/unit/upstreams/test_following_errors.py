"""A following after an error that nothing explains."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from ringback.upstreams.events.following import REJECTED_RETRY_SECONDS, FollowableConnection, Following
from ringback.upstreams.events.occurrences import FollowedEvents, UpstreamEventPage
from tests.support.clock import ManualClock
from tests.support.limits import WAIT_SECONDS


class FailingConnection:
    """The first session raises a bug; the second request for one is noted."""

    def __init__(self) -> None:
        self.requests = 0
        self.requested_again = asyncio.Event()

    async def get_shared_session(self, *, started_here: bool) -> Any:  # noqa: ARG002
        self.requests += 1
        if self.requests == 1:
            raise RuntimeError("a bug")
        self.requested_again.set()
        await asyncio.Event().wait()


async def test_an_unexpected_error_ends_no_following_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    connection, clock = FailingConnection(), ManualClock()

    async def store_page(followed: FollowedEvents, page: UpstreamEventPage) -> None:
        raise NotImplementedError

    async def wait_for_turn(event_count: int) -> None:
        raise NotImplementedError

    following = Following(
        FollowedEvents("github", "pr.opened", "{}"),
        cursor=None,
        streams=lambda: False,
        connections=cast("Mapping[str, FollowableConnection]", {"github": connection}),
        store_page=store_page,
        wait_for_turn=wait_for_turn,
        clock=clock,
    )
    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        task = group.create_task(following.run())
        while "upstream.following_failed" not in caplog.text:  # noqa: ASYNC110 - a log record sets no event
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        clock.advance(REJECTED_RETRY_SECONDS)
        await connection.requested_again.wait()
        task.cancel()

    assert connection.requests == 2
