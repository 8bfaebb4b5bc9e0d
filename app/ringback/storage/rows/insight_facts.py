"""What hourly rows are counted from: the rows of each stream as facts, and the position after a row.

A position is the text of what orders the stream: an id, or a JSON list of the values of its index.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.delivery import DeliveryState
from ringback.domain.ids import first_id_at, id_milliseconds
from ringback.domain.insight_rows import ALL_UPSTREAMS, Fact, FactStream
from ringback.domain.insights import CATEGORY, DEAD, DELIVERED, DURATION, LATENCY, OUTCOME, STARTED, latency_bucket
from ringback.storage.rows.columns import instant_to_column, json_to_column
from ringback.storage.rows.statements import Row


@dataclass(frozen=True, slots=True)
class StreamForm:
    """How the rows of one stream are selected and read."""

    encode_range: Callable[[str | None, datetime | None], dict[str, Any]]
    """The parameters that select the rows after a position (None: all) and before a time (None: all)."""
    decode_position: Callable[[Row], str]
    decode_fact: Callable[[Row], Fact | None]
    """None for a row that is not counted."""


def _encode_call_range(position: str | None, until: datetime | None) -> dict[str, Any]:
    return {"after": position or "", "until_id": None if until is None else first_id_at("call", until)}


def _encode_attempt_range(position: str | None, until: datetime | None) -> dict[str, Any]:
    return {"after": position or "", "until_id": None if until is None else first_id_at("att", until)}


def _encode_event_range(position: str | None, until: datetime | None) -> dict[str, Any]:
    instant, principal, seq = (0, "", 0) if position is None else jsontext.loads(position)
    return {
        "instant": instant,
        "after_principal": principal,
        "after_seq": seq,
        "until": instant_to_column(until),
    }


def _encode_delivery_range(position: str | None, until: datetime | None) -> dict[str, Any]:
    instant, delivery_id = (0, "") if position is None else jsontext.loads(position)
    return {"instant": instant, "after": delivery_id, "until": instant_to_column(until)}


def _decode_id(row: Row) -> str:
    return row["id"]


def _decode_event_position(row: Row) -> str:
    return json_to_column([row["instant"], row["principal"], row["seq"]])


def _decode_delivery_position(row: Row) -> str:
    return json_to_column([row["finished_at"], row["id"]])


def _decode_start(row: Row) -> Fact:
    return Fact(row["principal"], row["upstream"], from_epoch_milliseconds(row["created_at"]), (STARTED,))


def _decode_end(row: Row) -> Fact | None:
    """None for an event that is no end of a call, and for the end of a call that is not stored any more.

    A call that was never sent has no duration: its time in the queue says nothing about its tool.
    """
    if row["outcome"] is None:
        return None
    sent_at = row["dispatched_at"]
    durations = () if sent_at is None else (f"{DURATION}:{latency_bucket(row['instant'] - sent_at)}",)
    labels = (f"{OUTCOME}:{row['outcome']}", *durations)
    return Fact(row["principal"], row["upstream"], from_epoch_milliseconds(row["instant"]), labels)


def _decode_ended_delivery(row: Row) -> Fact | None:
    """None for a cancelled delivery."""
    instant = from_epoch_milliseconds(row["finished_at"])
    if row["state"] == DeliveryState.DELIVERED:
        latency = latency_bucket(row["finished_at"] - row["created_at"])
        return Fact(row["principal"], ALL_UPSTREAMS, instant, (DELIVERED, f"{LATENCY}:{latency}"))
    if row["state"] == DeliveryState.DEAD:
        return Fact(row["principal"], ALL_UPSTREAMS, instant, (DEAD,))
    return None


def _decode_attempt(row: Row) -> Fact | None:
    """None for an attempt whose delivery has been removed meanwhile."""
    if row["principal"] is None:
        return None
    instant = from_epoch_milliseconds(id_milliseconds(row["id"]))
    return Fact(row["principal"], ALL_UPSTREAMS, instant, (f"{CATEGORY}:{row['category']}",))


STREAM_FORMS: Final[Mapping[FactStream, StreamForm]] = {
    FactStream.STARTS: StreamForm(_encode_call_range, _decode_id, _decode_start),
    FactStream.ENDS: StreamForm(_encode_event_range, _decode_event_position, _decode_end),
    FactStream.DELIVERIES: StreamForm(_encode_delivery_range, _decode_delivery_position, _decode_ended_delivery),
    FactStream.ATTEMPTS: StreamForm(_encode_attempt_range, _decode_id, _decode_attempt),
}
