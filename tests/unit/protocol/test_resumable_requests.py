"""A position that a request can be resumed from."""

from typing import cast

import pytest

from ringback.protocol.resumable_requests import EVENT_ID_LENGTH_MAX, ResumableRequest
from ringback.protocol.sessions import LegacySessionId, StreamPosition

SESSION = LegacySessionId(session_id="s1", protocol_version="2025-11-25")


@pytest.mark.parametrize(
    "event_id", ["é", "\N{GRINNING FACE}", " 7", "7 ", "7\t", "a\x7f", "1" * (EVENT_ID_LENGTH_MAX + 1)]
)
async def test_an_event_id_that_no_header_can_carry_is_no_position(event_id: str) -> None:
    positions: list[StreamPosition] = []
    request = ResumableRequest(SESSION, "r1", positions.append)
    on_event_id = request.options.get("on_resumption_token")
    assert on_event_id is not None

    await on_event_id("stream 1/7")
    await on_event_id(event_id)

    assert [each.event_id for each in positions] == ["stream 1/7"]
    assert cast("StreamPosition", request.position).event_id == "stream 1/7"
