"""The errors of the client.

    ClientError
    ├── ConnectionFailed       no response, or not in time, or only a proxy's
    ├── UnexpectedAnswer       a response that is not Ringback's, or not of a known version
    └── Problem                Ringback rejected the request and said why (RFC 9457)
        ├── InvalidRequest     400, 413, 415, 422   the request is invalid
        ├── Unauthenticated    401                  no API key, or an unknown one
        ├── Forbidden          403                  the key lacks a permission
        ├── NotFound           404                  unknown, or of another principal
        ├── Conflict           409                  the current state does not allow it
        ├── Gone               410                  it existed and has expired
        ├── QuotaExceeded      429                  try again after `retry_after_seconds`
        └── Unavailable        503                  not now; nothing was started

The status determines the class. `slug`, the stable last part of the problem's type, is more specific (`idempotency-conflict`,
`result-not-ready`). Any other status is a plain `Problem`. An argument that cannot be sent is a ValueError, `InvalidArgument`.
"""

from collections.abc import Mapping
from typing import Any, Final

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
"""RFC 9457."""


class ClientError(Exception):
    """The base class of the client's errors. The text says what to do."""

    def __reduce__(self) -> tuple[Any, ...]:
        """For a pool of processes: without the constructor, whose arguments are not `args`."""
        return BaseException.__new__, (type(self), *self.args), self.__dict__


class InvalidArgument(ValueError):
    """An argument that cannot be sent. The text names it."""


class ConnectionFailed(ClientError):
    """There was no response of the service, or not in time. It is unknown whether the service executed the request."""


class UnexpectedAnswer(ClientError):
    """The response is not Ringback's."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The status of a response that is not in Ringback's form: the page of a proxy, or of another server. None for a
        response of a Ringback that this client cannot read."""


class Problem(ClientError):
    """Ringback rejected the request. The `detail` says what to do."""

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
        """Further members of the problem document, such as the unknown `tool`."""
        self.retry_after_seconds = retry_after_seconds

    @property
    def slug(self) -> str:
        return self.type.rsplit("/", 1)[-1]


class InvalidRequest(Problem):
    """The request is invalid."""


class Unauthenticated(Problem):
    """The request has no API key, or an unknown one."""


class Forbidden(Problem):
    """The API key lacks a permission."""


class NotFound(Problem):
    """The resource is unknown or belongs to another principal; the service does not say which."""


class Conflict(Problem):
    """The resource's current state does not allow the request."""


class Gone(Problem):
    """The resource existed and has expired."""


class QuotaExceeded(Problem):
    """A quota or rate limit is exceeded; nothing was done."""


class Unavailable(Problem):
    """The service cannot execute the request now; nothing was started."""


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
    """The exception for a problem document. Missing members get defaults (RFC 9457 §3.1)."""
    title = str(document.get("title") or f"HTTP {status}")
    return _PROBLEM_BY_STATUS.get(status, Problem)(
        status=status,
        type_=str(document.get("type") or "about:blank"),
        title=title,
        detail=str(document.get("detail") or title),
        extra={name: value for name, value in document.items() if name not in {"type", "title", "status", "detail"}},
        retry_after_seconds=retry_after_seconds,
    )
