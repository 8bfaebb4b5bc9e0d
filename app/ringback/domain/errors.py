"""Every error of ours, one tree. They know no HTTP: api/problems.py gives each kind its status.

    RingbackError
    ├── InvalidRequest            what was asked does not hold together
    │   ├── InvalidArguments      … against the tool's inputSchema
    │   ├── InvalidCallbackUrl    … the URL may not be called back
    │   ├── InvalidConfiguration  … the file with the upstreams
    │   ├── InvalidCursor         … a cursor of another list, or none of ours
    │   ├── UnknownUpstream
    │   └── UnknownTool
    ├── MalformedMessage          an MCP message that is no JSON-RPC, or that two readers would understand differently
    │   ├── MissingSession        … of a version with sessions, outside of one
    │   ├── UnreadableMessage     … no JSON
    │   ├── UnstorableMessage     … a number or a depth that cannot be written again
    │   ├── UnexpectedMediaType   … announced as something else than JSON
    │   └── NotAcceptable         … whose client does not accept the forms of the response
    ├── StreamEnded               its client has the response, and asks for more
    ├── Unauthenticated           no key, or none that we know
    ├── Forbidden                 a known key that may not do this
    ├── NotFound                  unknown and foreign alike
    │   ├── UnknownLogin          … or completed, or expired
    │   └── UnknownSession        … or ended
    ├── Gone                      it existed and has expired
    │   ├── CallExpired
    │   └── ResumeTokenExpired
    ├── Conflict                  it cannot be done to what is there
    │   ├── CallEnded
    │   ├── CallRunning           what is to be erased has not ended
    │   ├── IdempotencyConflict
    │   ├── LoginNotCompleted     an upstream, or its authorization server, allows no login or refused this one
    │   ├── ResultNotReady
    │   ├── SignInRequired        a user has to sign in to the upstream first
    │   ├── WebhookNotActive      nothing may go to it now
    │   └── WebhookNotVerified    its owner has to prove it first
    ├── QuotaExceeded             try again later; says when
    └── Unavailable               the service cannot do it now; nothing was started
        ├── StoreUnavailable
        │   └── RowsLocked        … for one unit of work only
        ├── ContentUnreadable     sealed with a key that is missing
        ├── LoginUnavailable      the authorization server of an upstream cannot be reached
        ├── IssuerUnavailable     whose tokens cannot be checked without it
        ├── EndpointUnavailable   of MCP: it failed and is being started again
        ├── UpstreamDraining      an operator lets its calls end
        └── ShuttingDown

An error's `slug` is the stable last part of its problem type; its `detail` says what to do, because agents read it. The
docstring's first line is the title. `extra` members go beside them in the problem document.
"""

from typing import Any, ClassVar


class RingbackError(Exception):
    """Something went wrong."""

    slug: ClassVar[str] = "error"

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra

    @classmethod
    def title(cls) -> str:
        return (cls.__doc__ or "").strip().splitlines()[0].rstrip(".")


class InvalidRequest(RingbackError):
    """Invalid request."""

    slug = "invalid-request"


class InvalidArguments(InvalidRequest):
    """Arguments do not match the tool's inputSchema."""

    slug = "invalid-arguments"


class InvalidCallbackUrl(InvalidRequest):
    """Callback URL refused."""

    slug = "invalid-callback-url"


class InvalidConfiguration(InvalidRequest):
    """The configuration of the upstreams cannot be used."""

    slug = "invalid-configuration"


class InvalidCursor(InvalidRequest):
    """Cursor not valid here."""

    slug = "invalid-cursor"


class UnknownUpstream(InvalidRequest):
    """Unknown upstream."""

    slug = "unknown-upstream"


class UnknownTool(InvalidRequest):
    """Unknown tool."""

    slug = "unknown-tool"


class MalformedMessage(RingbackError):
    """Message is not valid JSON-RPC."""

    slug = "malformed-message"


class UnreadableMessage(MalformedMessage):
    """Message is not JSON."""

    slug = "unreadable-message"


class UnstorableMessage(MalformedMessage):
    """Message has a value that cannot be stored."""

    slug = "unstorable-message"


class UnexpectedMediaType(MalformedMessage):
    """Message is not announced as JSON."""

    slug = "unexpected-media-type"


class NotAcceptable(MalformedMessage):
    """Response would not be accepted."""

    slug = "not-acceptable"


class MissingSession(MalformedMessage):
    """Message belongs to no session."""

    slug = "missing-session"


class StreamEnded(RingbackError):
    """Stream has ended."""

    slug = "stream-ended"


class Unauthenticated(RingbackError):
    """Authentication required."""

    slug = "unauthenticated"


class Forbidden(RingbackError):
    """Not allowed."""

    slug = "forbidden"


class NotFound(RingbackError):
    """Not found."""

    slug = "not-found"


class UnknownLogin(NotFound):
    """Unknown login."""

    slug = "unknown-login"


class UnknownSession(NotFound):
    """Unknown session."""

    slug = "unknown-session"


class Gone(RingbackError):
    """No longer available."""

    slug = "gone"


class CallExpired(Gone):
    """The call has expired."""

    slug = "call-expired"


class ResumeTokenExpired(Gone):
    """The resume token has expired."""

    slug = "resume-token-expired"


class Conflict(RingbackError):
    """Conflict."""

    slug = "conflict"


class CallEnded(Conflict):
    """The call has ended."""

    slug = "call-ended"


class CallRunning(Conflict):
    """The call has not ended."""

    slug = "call-running"


class IdempotencyConflict(Conflict):
    """Idempotency key used for another request."""

    slug = "idempotency-conflict"


class LoginNotCompleted(Conflict):
    """The login did not succeed."""

    slug = "login-failed"


class SignInRequired(Conflict):
    """The upstream requires a login."""

    slug = "login-required"


class ResultNotReady(Conflict):
    """The call has no result."""

    slug = "result-not-ready"


class WebhookNotActive(Conflict):
    """The webhook is not active."""

    slug = "webhook-not-active"


class WebhookNotVerified(Conflict):
    """The webhook is not verified."""

    slug = "webhook-not-verified"


class QuotaExceeded(RingbackError):
    """Quota exceeded."""

    slug = "quota-exceeded"

    def __init__(self, detail: str, *, retry_after_seconds: int, **extra: Any) -> None:
        super().__init__(detail, **extra)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(RingbackError):
    """Service unavailable."""

    slug = "unavailable"


class StoreUnavailable(Unavailable):
    """The database cannot be used."""

    slug = "store-unavailable"

    def __init__(self, detail: str, *, needs_operator: bool = False, **extra: Any) -> None:
        """`needs_operator`: an operator must act (damage, lost keys); a restart does not help."""
        super().__init__(detail, **extra)
        self.needs_operator = needs_operator


class RowsLocked(StoreUnavailable):
    """A row is locked for too long.

    The database works, but another unit of work has not released a row that this one needs.
    """

    slug = "rows-locked"

    def __init__(self, detail: str, *, waited_seconds: float) -> None:
        """`waited_seconds` is how long this unit has waited for the row."""
        super().__init__(detail)
        self.waited_seconds = waited_seconds


class ContentUnreadable(Unavailable):
    """Stored content cannot be read."""

    slug = "content-unreadable"


class LoginUnavailable(Unavailable):
    """The authorization server cannot be reached."""

    slug = "login-unavailable"


class IssuerUnavailable(Unavailable):
    """The token issuer cannot be asked."""

    slug = "issuer-unavailable"


class EndpointUnavailable(Unavailable):
    """The MCP endpoint is being started again."""

    slug = "endpoint-unavailable"


class UpstreamDraining(Unavailable):
    """The upstream is being drained."""

    slug = "upstream-draining"


class ShuttingDown(Unavailable):
    """The service is shutting down."""

    slug = "shutting-down"
