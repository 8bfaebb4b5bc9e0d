"""One example of each domain value. A test replaces the fields that it is about: `replace(CALL, status=CallStatus.FAILED)`."""

from datetime import timedelta
from typing import Final

from ringback.domain.call import Call
from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.event import EventName, build_call_event
from ringback.domain.ids import CallId, DeliveryId, EventId, WebhookId
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookSecret
from tests.support.clock import START

ALICE: Final = Principal("alice")
BOB: Final = Principal("bob")

CALL: Final = Call(
    id=CallId("call_01KAGZ8A000000000000000001"),
    principal=ALICE,
    upstream="git",
    tool="git_log",
    arguments={"repo_path": "/srv/repo"},
    client_session_id="session-1",
    correlation_id="report-1",
    request_hash="0" * 64,
    created_at=START,
    updated_at=START,
    deadline_at=START + timedelta(hours=1),
)

EVENT: Final = build_call_event(
    EventName.CALL_FINISHED, CALL, event_id=EventId("evt_01KAGZ8A000000000000000001"), seq=1, now=START
)

WEBHOOK: Final = Webhook(
    id=WebhookId("wh_01KAGZ8A000000000000000001"),
    principal=ALICE,
    url="https://agent.example/callback",
    secrets=(WebhookSecret(value="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),),
    created_at=START,
    updated_at=START,
)

DELIVERY: Final = Delivery(
    id=DeliveryId("dlv_01KAGZ8A000000000000000001"),
    principal=ALICE,
    webhook_id=WEBHOOK.id,
    event_id=EVENT.id,
    call_id=CALL.id,
    seq=EVENT.seq,
    body=b"{}",
    state=DeliveryState.PENDING,
    due_at=START,
    give_up_at=START + timedelta(days=4),
    created_at=START,
)
