"""Every error of the client, one tree.

    ClientError
    ├── ConnectionFailed       nobody answered, or not in time
    ├── UnexpectedAnswer       what answered is no Ringback, or none that this version understands
    └── Problem                Ringback said no, and why (RFC 9457)
        ├── InvalidRequest     400, 413, 415, 422   what was asked does not hold together
        ├── Unauthenticated    401                  no API key, or none that is known there
        ├── Forbidden          403                  a known key that may not do this
        ├── NotFound           404                  unknown and foreign alike
        ├── Conflict           409                  it cannot be done to what is there
        ├── Gone               410                  it existed and has expired
        ├── QuotaExceeded      429                  try again after `retry_after_seconds`
        └── Unavailable        503                  not now; nothing was started

The class comes from the status; `slug`, the stable last part of the problem's type, tells more (`idempotency-conflict`,
`result-not-ready`). A status that is not listed here, as a newer service may send, is a plain `Problem`.
"""

from collections.abc import Mapping
from typing import Any, Final


class ClientError(Exception):
    """Something went wrong between this client and the service; the text says what to do."""


class ConnectionFailed(ClientError):
    """Nobody answered, or not in time. Whether the request was carried out is not known."""


class UnexpectedAnswer(ClientError):
    """The answer is not one of Ringback's."""


class Problem(ClientError):
    """Ringback's own words for why it did not do what was asked. The `detail` says what to do."""

    def __init__(
        self,
        *,
        status: int,
        type_: str,
        title: str,
        detail: str,
        extra: Mapping[str, Any],
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.type = type_
        self.title = title
        self.detail = detail
        self.extra = extra
        """Further members of the problem document, such as the `tool` that is unknown."""
        self.retry_after_seconds = retry_after_seconds

    @property
    def slug(self) -> str:
        return self.type.rsplit("/", 1)[-1]


class InvalidRequest(Problem):
    """What was asked does not hold together."""


class Unauthenticated(Problem):
    """No API key was sent, or none that is known there."""


class Forbidden(Problem):
    """The API key is known, and may not do this."""


class NotFound(Problem):
    """There is no such thing, or it is somebody else's; which of the two is not told."""


class Conflict(Problem):
    """It cannot be done to what is there."""


class Gone(Problem):
    """It existed and has expired."""


class QuotaExceeded(Problem):
    """Too much at once; nothing was done."""


class Unavailable(Problem):
    """The service cannot do it now; nothing was started."""


_PROBLEM_BY_STATUS: Final[Mapping[int, type[Problem]]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: InvalidRequest,
    415: InvalidRequest,
    422: InvalidRequest,
    429: QuotaExceeded,
    503: Unavailable,
}


def build_problem(status: int, document: Mapping[str, Any], *, retry_after_seconds: float | None) -> Problem:
    """The problem that a document describes; what the document leaves out has a default, as RFC 9457 §3.1 allows."""
    title = str(document.get("title") or f"HTTP {status}")
    return _PROBLEM_BY_STATUS.get(status, Problem)(
        status=status,
        type_=str(document.get("type") or "about:blank"),
        title=title,
        detail=str(document.get("detail") or title),
        extra={name: value for name, value in document.items() if name not in {"type", "title", "status", "detail"}},
        retry_after_seconds=retry_after_seconds,
    )
