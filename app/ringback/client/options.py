"""What may be said beside the URL of a webhook. What is left out has the service's default."""

from collections.abc import Sequence
from typing import Literal, Required, TypedDict


class WebhookOptions(TypedDict, total=False):
    """What a registration may say beside its URL."""

    secret: str
    """A `whsec_…` signing secret of your own; without one the service makes one and shows it once."""
    events: Sequence[str]
    upstream: str
    tool: str
    call_id: str
    client_session_id: str
    correlation_id: str
    match_correlation: bool
    retries: Literal["days", "minutes"]
    include_result: bool
    description: str
    cursor: str
    """Hear from this place in the event log on, instead of from now."""
    expires_in_seconds: float


class CallbackOptions(TypedDict, total=False):
    """A callback given along with one call: it hears that call and nothing else, so there is nothing to filter."""

    url: Required[str]
    secret: str
    events: Sequence[str]
    correlation_id: str
    retries: Literal["days", "minutes"]
    include_result: bool
    description: str


class WebhookChange(TypedDict, total=False):
    """What may be changed of a webhook."""

    url: str
    events: Sequence[str]
    description: str
    include_result: bool
    retries: Literal["days", "minutes"]
    state: Literal["active", "disabled"]
