"""The header Idempotency-Key at operations that do their work again with each request.

A client that sends the header will repeat the request. Ignored, it would mean a second key, another secret, or the same events
twice. Operations whose repetition changes nothing ignore it: the client gets what it expects. So do requests each of whose
members has a key of its own: generated clients send the header with every POST.
"""

from collections.abc import Iterable
from typing import Any, Final

from fastapi import Depends, Request

from ringback.domain.errors import InvalidRequest

IDEMPOTENCY_KEY_HEADER: Final = "Idempotency-Key"
_REFUSAL: Final = (
    f"This operation takes no {IDEMPOTENCY_KEY_HEADER}: it does its work with each request. Nothing was done. Leave the header "
    "out."
)
_DEFAULT_ADVICE: Final = "Before you repeat a request, read what the first one did."


def refuse_idempotency_key(advice: str = _DEFAULT_ADVICE) -> Any:
    """A dependency of an operation: it refuses the header with `InvalidRequest`. `advice`: what the client does instead."""

    async def refuse(request: Request) -> None:
        require_own_keys(request, [None], advice)

    return Depends(refuse)


def require_own_keys(request: Request, keys: Iterable[str | None], advice: str) -> None:
    """Raise `InvalidRequest` for the header, unless each member of the request has a key of its own."""
    if IDEMPOTENCY_KEY_HEADER in request.headers and None in keys:
        raise InvalidRequest(f"{_REFUSAL} {advice}")
