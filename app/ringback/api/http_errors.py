"""Errors of HTTP itself: the server or the API refuses a request before a service sees it. `problems` has their statuses."""

from ringback.domain import errors


class MalformedJson(errors.RingbackError):
    """Body cannot be read as JSON."""

    slug = "malformed-json"


class UnsupportedMediaType(errors.RingbackError):
    """Content type is not JSON."""

    slug = "unsupported-media-type"


class UnsupportedContentEncoding(UnsupportedMediaType):
    """Body is compressed."""

    slug = "unsupported-content-encoding"


class ContentTooLarge(errors.RingbackError):
    """Body too large."""

    slug = "content-too-large"


class MethodNotAllowed(errors.RingbackError):
    """Method not allowed."""

    slug = "method-not-allowed"


class RangeNotSatisfiable(errors.RingbackError):
    """Range not satisfiable."""

    slug = "range-not-satisfiable"


class UnknownPath(errors.NotFound):
    """No such path."""

    slug = "unknown-path"


class HostNotAllowed(errors.RingbackError):
    """Host not served here."""

    slug = "foreign-host"


class OriginNotAllowed(errors.Forbidden):
    """Origin not allowed."""

    slug = "foreign-origin"


class MalformedRequest(errors.RingbackError):
    """Request cannot be read."""

    slug = "malformed-request"


class RequestTooSlow(errors.RingbackError):
    """Request did not come in time."""

    slug = "request-too-slow"


class UrlTooLong(errors.RingbackError):
    """URL too long."""

    slug = "url-too-long"


class HeadersTooLarge(errors.RingbackError):
    """Headers too large."""

    slug = "headers-too-large"


class TooManyConnections(errors.Unavailable):
    """Too many connections."""

    slug = "too-many-connections"


class InternalError(errors.RingbackError):
    """Internal error."""

    slug = "internal-error"
