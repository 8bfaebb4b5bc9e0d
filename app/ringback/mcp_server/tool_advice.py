"""Rewrites the advice in error details for models, which have tools instead of REST.

Services write details for REST: they end with the request that helps. A model cannot send it, so each such request becomes the
tool that does the same, or the person who can.
"""

import re
from typing import Final

_PATH: Final = r"(?:GET|POST|PATCH|PUT|DELETE) /v1/"
_ADVICE: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"List them: GET /v1/upstreams/\S+/tools", "Choose one from the list of tools."),
        (r" If the tool accepts them nevertheless, the operator can [^.]*\.", ""),
        (r"See it: GET /v1/upstreams/\S+/tools", "tools/list has its schema."),
        (r"See how it is doing: GET /v1/upstreams", "Try again in a moment; if that fails, tell the user."),
        (
            r"See what to do: GET /v1/upstreams",
            "Do not try again: tell the user, who sees with `ringback upstreams` what to do.",
        ),
        (r"See its state: GET /v1/upstreams", "If that fails, tell the user."),
        (r"List them: GET /v1/upstreams", "Ask the user for its name."),
        (r", or GET /v1/webhooks", ""),
        (
            r"Remove webhooks: DELETE /v1/webhooks/\{id\}",
            "Ask the user to remove webhooks: `ringback webhooks remove ID`.",
        ),
        (
            r"Enable it first: PATCH /v1/webhooks/(\w+) \{[^}]*\}",
            r"Ask the user to enable it: `ringback webhooks enable \1`.",
        ),
        (r"List yours: GET /v1/calls", "List yours with ringback_list_calls."),
        (r"Wait for it: GET /v1/calls/[^\s?]+(\?\S*)?", "Wait for it with ringback_wait_for_call."),
        (r"Its error is in GET /v1/calls/\S+", "Get its error with ringback_get_call."),
    )
)
_OTHER_REQUEST: Final = re.compile(_PATH + r"[^\s.]*(?:\.\w+)*(?: \{[^}]*\})?")
"""A request without a tool of its own, with the JSON body that may follow it."""
_OTHER_REPLACEMENT: Final = "the user can, with Ringback's REST API"


def name_tools(detail: str) -> str:
    """The detail without REST requests."""
    for pattern, replacement in _ADVICE:
        detail = pattern.sub(replacement, detail)
    return _OTHER_REQUEST.sub(_OTHER_REPLACEMENT, detail)
