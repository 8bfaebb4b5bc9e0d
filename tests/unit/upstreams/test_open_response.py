"""The responses of a session that no caller waits for: which are closed when there are too many."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from ringback.upstreams.transports import open_response
from ringback.upstreams.transports.open_response import UnawaitedResponses, get_open_response
from tests.support.limits import WAIT_SECONDS


def end_block(responses: UnawaitedResponses, error: BaseException, close: Callable[[], Awaitable[None]]) -> None:
    with suppress(type(error)), responses.awaiting_response():
        response = get_open_response()
        assert response is not None
        response.attach(close)
        raise error


async def test_only_cancelled_requests_count_towards_the_responses_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is a response. With many errors, the response to an earlier cancelled request would be closed at once."""
    monkeypatch.setattr(open_response, "UNAWAITED_MAX", 1)
    responses, closed = UnawaitedResponses(), asyncio.Event()

    async def close() -> None:
        closed.set()

    async def ignore() -> None:
        pass

    end_block(responses, asyncio.CancelledError(), close)
    end_block(responses, ValueError("the upstream responded with an error"), ignore)
    await asyncio.sleep(0)
    assert not closed.is_set()

    end_block(responses, asyncio.CancelledError(), ignore)
    await asyncio.wait_for(closed.wait(), WAIT_SECONDS)
    assert get_open_response() is None
