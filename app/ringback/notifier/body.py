"""The body of a callback: one form for every webhook, an MCP EventOccurrence (mcp-events §3).

It is thin: ids, digests and a resume token. No text that an upstream controls is in it unless the owner asked for the result.
There is no top-level `type`, because that is what marks control envelopes.
"""

from datetime import datetime
from typing import Any, Final

import orjson

from ringback.domain.call import Call, resource_uri
from ringback.domain.clock import iso
from ringback.domain.cursor import Place, encode_place
from ringback.domain.event import Event, EventName
from ringback.domain.ids import EventId
from ringback.domain.webhook import TEST_EVENT, Webhook, When
from ringback.notifier.resume_tokens import CallTokens

BODY_BYTES_MAX: Final = 262_144
"""The largest body that may be sent (mcp-events §8). A result that does not fit is left out whole, never cut."""


class Bodies:
    def __init__(self, *, tokens: CallTokens, public_url: str) -> None:
        self._tokens = tokens
        self._public_url = public_url.rstrip("/")
        self._issued: tuple[Call, Place, str] | None = None
        """The last token, and what it was issued for: all webhooks that hear an event are given the same one."""

    def make(
        self, event: Event, webhook: Webhook, *, call: Call | None, safe: Place, result: bytes | None = None
    ) -> bytes:
        """The bytes that every attempt sends.

        `call` is None when the call has already expired: then there is nothing left to resume. `safe` is the place
        at or before which everything of this webhook was delivered or abandoned. `result` is inlined if it fits.
        """
        data = dict(event.data)
        if webhook.correlation_id is not None:
            data["webhook_correlation_id"] = webhook.correlation_id
        if call is not None:
            data["resume_token"] = self._token(call, event.place)
            data["resume_url"] = f"{self._public_url}/v1/resume"
            data["resource_uri"] = resource_uri(call)
            data["mcp_url"] = f"{self._public_url}/mcp"
        if call is not None and event.name is EventName.CALL_FINISHED:
            # A detached webhook rings only if nobody is known to have read the answer.
            data["answered_inline"] = call.answered_inline and webhook.when is When.ALWAYS
        thin = _serialise(event, data, safe)
        if result is None or len(thin) + len(result) > BODY_BYTES_MAX:
            return thin
        whole = _serialise(event, {**data, "result": orjson.Fragment(result)}, safe)
        return whole if len(whole) <= BODY_BYTES_MAX else thin

    def _token(self, call: Call, place: Place) -> str:
        if self._issued is None or self._issued[0] is not call or self._issued[1] != place:
            self._issued = call, place, self._tokens.issue(call, after=place)
        return self._issued[2]


def body_of_test(webhook: Webhook, *, event_id: EventId, safe: Place, now: datetime) -> bytes:
    """The same form for a test: it is about the webhook and no call, so there is nothing to resume."""
    data: dict[str, Any] = {"webhook_id": webhook.id, "client_session_id": webhook.client_session_id}
    if webhook.correlation_id is not None:
        data["webhook_correlation_id"] = webhook.correlation_id
    return _occurrence(event_id, TEST_EVENT, now, data, safe)


def _serialise(event: Event, data: dict[str, Any], safe: Place) -> bytes:
    return _occurrence(event.id, event.name, event.created_at, data, safe)


def _occurrence(event_id: EventId, name: str, timestamp: datetime, data: dict[str, Any], safe: Place) -> bytes:
    return orjson.dumps(
        {
            "eventId": event_id,
            "name": name,
            "timestamp": iso(timestamp),
            "cursor": encode_place(safe),
            "data": data,
        }
    )
