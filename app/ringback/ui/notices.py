"""The sentences that a page shows after an action, by the value of `?done=`. A link can show no other sentence."""

from typing import Final

from starlette.requests import Request

NOTICES: Final = {
    "call-started": "The call was started.",
    "call-cancelled": "The end of the call was requested.",
    "webhook-changed": "The webhook is changed. What it receives from now on is described below.",
    "webhook-tested": "A test is on its way. The first delivery below shows how it ends.",
    "webhook-verified": "The URL was challenged again. The line “Challenge” below says how it ended.",
    "webhook-enabled": "The webhook is active. Its held and waiting deliveries are due now.",
    "webhook-disabled": "The webhook is disabled: no event matches it, and its open deliveries are held.",
    "webhook-paused": "The webhook is paused: its deliveries are held until you resume it.",
    "webhook-resumed": "The webhook is resumed. Its held deliveries are sent now.",
    "webhook-removed": "The webhook is removed, and its open deliveries are cancelled.",
    "delivery-redelivered": "The delivery is queued to be sent again, with the same body and the same webhook-id.",
    "delivery-sent-before": "The delivery had been sent again before. This is its latest sending; nothing was sent now.",
    "upstream-paused": "The upstream is paused: its calls stay queued. Running calls continue.",
    "upstream-draining": "The upstream is drained: new calls are refused. Queued and running calls continue.",
    "upstream-resumed": "The upstream takes calls again.",
}


QUEUED_DELIVERIES: Final = frozenset({"webhook-replayed", "deliveries-redelivered"})
"""Actions on many deliveries. `sent` in the query has their number."""
SENT_LENGTH_MAX: Final = 12
"""Digits of the number of deliveries in a page's URL."""


def find_notice(request: Request) -> str | None:
    done = request.query_params.get("done", "")
    if done in QUEUED_DELIVERIES:
        return describe_queued(read_number(request.query_params.get("sent", "")))
    return NOTICES.get(done)


def describe_queued(number: int) -> str:
    """Nothing has been sent yet: a breaker, a pause or a disabled webhook may come first."""
    if number == 1:
        return "1 delivery is queued to be sent again, with the same body and the same webhook-id."
    return f"{number:,} deliveries are queued to be sent again, with the same bodies and the same webhook-ids."


def read_number(text: str) -> int:
    """0 for what is no number."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= SENT_LENGTH_MAX else 0
