"""Builds domain values, each with its own id: `make_call(upstream="time")`. Ids sort in the order of creation."""

from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import Any

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call import Call
from ringback.domain.call_rows import Tombstone
from ringback.domain.clock import epoch_milliseconds
from ringback.domain.delivery import Attempt, Delivery
from ringback.domain.erasure import Erasure, ErasureKind
from ringback.domain.event import Event
from ringback.domain.ids import AttemptId, CallId, DeliveryId, ErasureId, EventId, KeyId, WebhookId, ulid
from ringback.domain.principal import DEFAULT_SCOPES, ApiKey, Principal
from ringback.domain.webhook import Webhook
from tests.support.clock import START
from tests.support.examples import ALICE, CALL, DELIVERY, EVENT, WEBHOOK

_id_numbers = count(1)


def make_call(**over: Any) -> Call:
    return replace(CALL, **({"id": CallId(_next_id("call"))} | over))


def make_event(**over: Any) -> Event:
    return replace(EVENT, **({"id": EventId(_next_id("evt"))} | over))


def make_webhook(**over: Any) -> Webhook:
    return replace(WEBHOOK, **({"id": WebhookId(_next_id("wh"))} | over))


def make_verified_webhook(**over: Any) -> Webhook:
    """A webhook whose last attempt succeeded, so that it may have more than one in flight."""
    return make_webhook(**({"last_delivery_at": START} | over))


def make_delivery(**over: Any) -> Delivery:
    """A delivery of its own event, so that one webhook may have several."""
    return replace(DELIVERY, **({"id": DeliveryId(_next_id("dlv")), "event_id": EventId(_next_id("evt"))} | over))


def make_attempt(delivery: Delivery, **over: Any) -> Attempt:
    attempt = Attempt(
        id=AttemptId(_next_id("att")),
        delivery_id=delivery.id,
        number=1,
        started_at=START,
        duration_ms=12,
        category=AttemptCategory.HTTP_5XX,
        status_code=503,
        excerpt="try later",
    )
    return replace(attempt, **over)


def make_api_key(**over: Any) -> ApiKey:
    identity = _next_id("key")
    key = ApiKey(
        id=KeyId(identity),
        principal=ALICE,
        name="laptop",
        hash=f"hash of {identity}",
        prefix="rbk_abcd",
        scopes=DEFAULT_SCOPES,
        upstreams=None,
        created_at=START,
    )
    return replace(key, **over)


def make_identity_erasure(principal: Principal, *, requested_at: datetime = START) -> Erasure:
    """The erasure of a principal, requested by itself, of all that it owns."""
    return Erasure(
        id=ErasureId("era_1"),
        principal=principal,
        kind=ErasureKind.PRINCIPAL,
        target=principal,
        cancels=False,
        requested_by=principal,
        requested_at=requested_at,
        head=0,
        worked_at=requested_at,
    )


def make_call_erasure(call: Call, **over: Any) -> Erasure:
    """The erasure of this call, requested by its owner."""
    erasure = Erasure(
        id=ErasureId(_next_id("era")),
        principal=call.principal,
        kind=ErasureKind.CALL,
        target=call.id,
        cancels=False,
        requested_by=call.principal,
        requested_at=START,
        head=0,
        worked_at=START,
    )
    return replace(erasure, **over)


def make_tombstone(**over: Any) -> Tombstone:
    tombstone = Tombstone(
        call_id=CallId(_next_id("call")), principal=ALICE, idempotency_key=None, request_hash="0" * 64, expired_at=START
    )
    return replace(tombstone, **over)


def _next_id(prefix: str) -> str:
    number = next(_id_numbers)
    return f"{prefix}_{ulid(epoch_milliseconds(START) + number, number.to_bytes(16))}"
