"""What is answered to whoever brought a call about, by starting it, reporting it or adopting it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ringback.domain.call import Call
from ringback.domain.cursor import Place
from ringback.domain.event import EventName, event_of
from ringback.domain.ids import EventId
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook
from ringback.notifier.record import listeners
from ringback.notifier.resume_tokens import CallTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    call: Call
    resume_token: str = field(repr=False)
    webhooks: Sequence[Webhook]
    """Who will be rung when the call ends."""
    created: bool
    """False when the idempotency key named a call that was already there."""
    secret: str | None = field(default=None, repr=False)
    """The callback's signing secret if it was generated just now; shown this once."""


async def started(tx: Transaction, tokens: CallTokens, call: Call, *, created: bool, secret: str | None) -> Started:
    """A new call's token stands at the end of the log as it was before the call; any other's at its beginning.

    Its place needs no mark: a log that does not hold this place does not belong to a database that holds this call.
    """
    head = await tx.event_places.head(call.principal)
    end = event_of(EventName.CALL_FINISHED, call, event_id=EventId(""), seq=head, now=tx.now())
    return Started(
        call=call,
        resume_token=tokens.issue(call, after=Place(head if created and not call.final else 0)),
        webhooks=await listeners(tx, end),
        created=created,
        secret=secret,
    )
