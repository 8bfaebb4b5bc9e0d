"""What happens with the open deliveries of a webhook after a request that makes them due, and when."""

from typing import Any

from pydantic import Field

from ringback.schemas.fields import Instant, ResponseBody
from ringback.services.attempt_scheduling import OpenDeliveries


class OpenDeliveriesView(ResponseBody):
    """The open deliveries of one webhook."""

    due_now: int = Field(
        description="The number of deliveries that are due, counted up to 10,000. If the receiver failed last, one of them is "
        "sent first, and the others follow its success."
    )
    held: int = Field(description="The number of deliveries that wait until the webhook is active and not paused.")
    in_flight: int = Field(description="The number of deliveries that are being sent.")
    next_attempt_at: Instant | None = Field(
        description="The earliest time of the next attempt; null if none is scheduled."
    )


def deliveries_members(deliveries: OpenDeliveries) -> dict[str, Any]:
    """The members of an `OpenDeliveriesView`."""
    return dict(OpenDeliveriesView.model_validate(deliveries))
