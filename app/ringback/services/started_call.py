"""What is answered to whoever brought a call about, by starting it, reporting it or adopting it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ringback.domain.call import Call
from ringback.domain.cursor import LogPosition
from ringback.domain.event import EventName, build_call_event
from ringback.domain.ids import EventId
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook
from ringback.notifier.recorder import find_matching_webhooks
from ringback.notifier.resume_tokens import CallResumeTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedCall:
    call: Call
    resume_token: str = field(repr=False)
    webhooks: Sequence[Webhook]
    """Who will be rung when the call ends."""
    is_new: bool
    """False when the idempotency key named a call that was already there."""
    callback_secret: str | None = field(default=None, repr=False)
    """The callback's signing secret if it was generated just now; shown this once."""


async def build_started_call(
    tx: Transaction, tokens: CallResumeTokens, call: Call, *, created: bool, secret: str | None
) -> StartedCall:
    """A new call's token stands at the end of the log as it was before the call; any other's at its beginning.

    Its place needs no mark: a log that does not hold this place does not belong to a database that holds this call.
    """
    head = await tx.event_log.get_head(call.principal)
    completion_event = build_call_event(EventName.CALL_FINISHED, call, event_id=EventId(""), seq=head, now=tx.now())
    return StartedCall(
        call=call,
        resume_token=tokens.issue_token(call, position=LogPosition(head if created and not call.is_final else 0)),
        webhooks=await find_matching_webhooks(tx, completion_event),
        is_new=created,
        callback_secret=secret,
    )
