"""The sentences that a page shows after an action, by the value of `?done=`. A link can show no other sentence."""

from typing import Final

from starlette.requests import Request

NOTICES: Final = {
    "webhook-tested": "A test is on its way. The first delivery below shows how it ends.",
    "webhook-verified": "The URL was challenged again. The state shows whether it has proven that it accepts callbacks.",
    "webhook-enabled": "The webhook is active. Its held deliveries are sent now.",
    "webhook-disabled": "The webhook is disabled: no event matches it.",
    "webhook-paused": "The webhook is paused: its deliveries are held until you resume it.",
    "webhook-resumed": "The webhook is resumed. Its held deliveries are sent now.",
    "webhook-removed": "The webhook is removed, and its open deliveries are cancelled.",
    "webhook-replayed": "The deliveries are sent again, with the same bodies and the same webhook-ids.",
    "delivery-redelivered": "The delivery is sent again now, with the same body and the same webhook-id.",
    "delivery-sent-before": "The delivery had been sent again before. This is its latest sending; nothing was sent now.",
    "deliveries-redelivered": "All deliveries that matched are sent again, with the same bodies and the same webhook-ids.",
    "upstream-paused": "The upstream is paused: its calls stay queued. Running calls continue.",
    "upstream-draining": "The upstream is drained: new calls are refused. Queued and running calls continue.",
    "upstream-resumed": "The upstream takes calls again.",
}


def find_notice(request: Request) -> str | None:
    return NOTICES.get(request.query_params.get("done", ""))
