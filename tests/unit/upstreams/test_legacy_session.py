"""Which legacy sessions are ended at their upstream: all in which no call can go on."""

import asyncio
from typing import Any, cast

import httpx2
import pytest
from mcp.shared.dispatcher import CallOptions

from ringback.protocol.errors import RequestNotSent, ResponseLost, UpstreamError
from ringback.protocol.legacy_session_transport import LegacySessionTransport
from ringback.protocol.sessions import LegacySessionId
from ringback.upstreams import legacy_session
from ringback.upstreams.legacy_session import LegacySession
from tests.support.limits import WAIT_SECONDS

SESSION = LegacySessionId(session_id="s1", protocol_version="2025-11-25")
OUTCOMES = [RequestNotSent("away"), ResponseLost("lost"), UpstreamError({}), asyncio.CancelledError()]


class SilentDispatcher:
    async def notify(self, *_: Any) -> None: ...

    async def answer_elicitation(self, *_: Any, **__: Any) -> None: ...


async def test_an_answer_counts_as_arrived_although_the_upstream_never_answers_the_ping_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call stored no further question of its tool, and both waited for its deadline."""
    monkeypatch.setattr(legacy_session, "FLUSH_SECONDS", 0.01)
    sent: list[str] = []

    async def send(method: str, _params: dict[str, Any], _options: CallOptions) -> dict[str, Any]:
        sent.append(method)
        await asyncio.Event().wait()
        return {}

    session = LegacySession(
        cast("Any", SilentDispatcher()),
        send=send,
        protocol_version="2025-11-25",
        transport=None,
        is_dedicated=False,
        request_id_prefix="r",
    )
    await asyncio.wait_for(session.answer_elicitation("7", {"action": "accept"}), WAIT_SECONDS)

    assert sent == ["ping"]


async def has_kept_session(outcome: BaseException, *, event_id: str | None) -> bool:
    """Whether the session stays open for a call that ends so, after this event."""
    transport = LegacySessionTransport(httpx2.MockTransport(lambda _: httpx2.Response(200)))

    async def send(_method: str, _params: dict[str, Any], options: CallOptions) -> dict[str, Any]:
        if event_id is not None:
            await options["on_resumption_token"](event_id)  # pyright: ignore[reportTypedDictNotRequiredAccess]
        raise outcome

    session = LegacySession(
        cast("Any", SilentDispatcher()),
        send=send,
        protocol_version="2025-11-25",
        transport=transport,
        is_dedicated=False,
        request_id_prefix="r",
    )
    with pytest.raises(type(outcome)):
        await session.send_resumable_request(SESSION, "tools/call", {}, {}, lambda _: None)
    return bool(transport.resumable_calls)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
async def test_a_session_is_ended_if_no_call_can_be_resumed_in_it(outcome: BaseException) -> None:
    """Servers without event ids, which are most, kept each session in which a call was cancelled once."""
    assert not await has_kept_session(outcome, event_id=None)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
async def test_a_session_is_kept_for_a_call_whose_response_can_be_read_later(outcome: BaseException) -> None:
    assert await has_kept_session(outcome, event_id="7") is not isinstance(outcome, UpstreamError)
