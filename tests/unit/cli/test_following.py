"""How a command follows a call while the service does not respond."""

import asyncio
from typing import cast
from unittest.mock import AsyncMock

import pytest

from ringback.cli import following
from ringback.client import Call, ConnectionFailed, RingbackClient
from ringback.schemas import examples

WORKING = Call.model_validate(examples.WORKING_CALL)
FINISHED = Call.model_validate(examples.FINISHED_CALL)


async def test_the_pauses_before_the_next_attempt_double_up_to_fifteen_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleep = AsyncMock()
    monkeypatch.setattr(asyncio, "sleep", sleep)
    client = AsyncMock()
    client.call.side_effect = [*[ConnectionFailed("refused")] * 6, WORKING, ConnectionFailed("refused"), FINISHED]

    ended = await following.follow_call(cast("RingbackClient", client), WORKING)

    pauses = [awaited.args[0] for awaited in sleep.await_args_list]
    assert ended == FINISHED
    assert pauses == [following.POLL_INTERVAL_SECONDS, 1, 2, 4, 8, 15, 15, following.POLL_INTERVAL_SECONDS, 1]
