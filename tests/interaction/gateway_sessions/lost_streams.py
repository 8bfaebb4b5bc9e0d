"""Requests of legacy clients that lose their stream while the upstream works."""

from typing import Final

from tests.interaction.gateway_sessions.conftest import RunningRingback
from tests.support.event_reader import open_stream
from tests.support.mcp_wire import Json, LegacyClientSession

HOLD: Final[Json] = {"name": "hold", "arguments": {"text": "kept"}, "_meta": {"progressToken": "p"}}
LONG_WAIT: Final = {"inline_wait_seconds": 40.0}


async def lose_stream(
    running: RunningRingback, session: LegacyClientSession, params: Json = HOLD, *, request_id: int | str = 7
) -> str:
    """Send tools/call, wait until the upstream has it, and close the connection. Returns the id of the last event."""
    async with open_stream(session, "tools/call", params, request_id=request_id) as stream:
        first = await stream.next()
        await running.files.stage.wait_until_held(1)
    assert first.id is not None
    return first.id
