"""The ids of a delivery for its log lines: ours, and those that the client gave its call."""

from typing import Any, Final

import orjson

from ringback.domain.delivery import Delivery

_INLINED_RESULT: Final = b',"result":'
"""What follows in a body has up to 256 KiB, and is not decoded for a log line. A text in JSON cannot contain these bytes."""
_CLIENT_IDS: Final = ("client_session_id", "correlation_id", "upstream")


def delivery_facts(delivery: Delivery) -> dict[str, object]:
    """A delivery has no columns for the ids of the client. Its body has them, if it is about a call."""
    return {
        "delivery_id": delivery.id,
        "webhook_id": delivery.webhook_id,
        "call_id": delivery.call_id,
        "principal": delivery.principal,
        "message_id": delivery.message_id,
    } | _read_client_ids(delivery)


def _read_client_ids(delivery: Delivery) -> dict[str, object]:
    if delivery.call_id is None:
        return {}  # the data of an external event is its source's own
    head, result, _ = delivery.body.partition(_INLINED_RESULT)
    try:
        data: dict[str, Any] = orjson.loads(head + b"}}" if result else head)["data"]
        return {name: data.get(name) for name in _CLIENT_IDS}
    except (ValueError, KeyError, TypeError, AttributeError):  # it could not be unsealed
        return {}
