"""What PostgreSQL's errors mean for the caller of a unit of work.

a conflict with another unit                               the unit runs again; then RowsLocked after deadlocks
the server, its disk or the way to it                       StoreUnavailable: try again
a row that another unit does not release                    RowsLocked, a StoreUnavailable
a password, a database that does not exist, damage          StoreUnavailable: an operator must act
a parameter or a certificate of the database URL            the same
a pooler that does not keep sessions                        the same
text that PostgreSQL cannot store                           InvalidRequest
anything else                                               the error itself: a bug
"""

import ssl
from typing import Final

import asyncpg

from ringback.domain.errors import InvalidRequest, RingbackError, RowsLocked, StoreUnavailable

LOCK_TIMEOUT_SECONDS: Final = 10.0
"""Less than the time for a whole statement (`driver`), so that the error says what it waited for."""

_PASSING_CONFLICTS: Final = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InvalidCachedStatementError,  # a migration has changed a table; asyncpg has forgotten its old plans
)
"""Conflicts that say nothing about the request: it may succeed later."""
_CONFLICTS: Final = (
    *_PASSING_CONFLICTS,
    asyncpg.UniqueViolationError,  # another unit inserted the row since this one looked: now it finds it
    asyncpg.ForeignKeyViolationError,  # … or removed the row that this one refers to
)
_LOST_CONNECTIONS: Final = (
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    OSError,
    TimeoutError,
    EOFError,
)
_OPERATOR_CLASSES: Final = ("28", "3D", "XX", "42501")
"""Wrong password or role; no such database; damaged data; a missing privilege."""
_SETTING_CODES: Final = frozenset({"42704", "22023"})
"""A setting that the server does not know, or a value that it does not take. Only a connection that opens raises them here."""
_SHARED_SESSION_CODES: Final = frozenset({"26000", "42P05"})
"""A prepared statement that does not exist, or exists already: another session than that in which the driver prepared it."""
_UNSUPPORTED_AT_START: Final = "unsupported startup parameter"
"""In the words of pgbouncer."""
_NO_TLS: Final = "rejected SSL upgrade"
"""In the driver's words for a server without TLS."""
_LOCK_NOT_AVAILABLE: Final = "55P03"
_UNAVAILABLE_CLASSES: Final = ("53", "57", "58", "08", _LOCK_NOT_AVAILABLE, "25006")
"""No space, memory or connection left; operator intervention; system errors; connections; a lock that was not free in
time; and a server that only reads, as a standby does."""
_UNSTORABLE_TEXT_CODES: Final = frozenset({"22021", "22P05"})
SESSIONS_NOT_KEPT: Final = (
    "The pooler before PostgreSQL gives a connection another session after each transaction. Let it keep sessions (pgbouncer: "
    "pool_mode = session), or connect directly."
)


def is_conflict(error: BaseException) -> bool:
    """Whether the same unit of work may succeed if it runs again at once."""
    return isinstance(error, _CONFLICTS)


def is_connection_lost(error: BaseException) -> bool:
    if isinstance(error, asyncpg.InterfaceError):
        return "closed" in str(error)  # its other reasons are bugs
    return isinstance(error, _LOST_CONNECTIONS)


def is_session_replaced(error: BaseException) -> bool:
    """Whether the connection has another session than that in which the driver prepared its statements."""
    return _code(error) in _SHARED_SESSION_CODES


def to_caller_error(error: Exception, *, ran_seconds: float = 0.0) -> Exception:
    """The error for the caller of a unit of work. `ran_seconds` is how long all runs of the unit took."""
    if isinstance(error, RingbackError):
        return error
    if isinstance(error.__cause__ or error, UnicodeEncodeError) or _code(error) in _UNSTORABLE_TEXT_CODES:
        return InvalidRequest("A text contains characters that cannot be stored: U+0000, or half of a surrogate pair.")
    if isinstance(error, _PASSING_CONFLICTS):
        detail = "Other units of work changed the same rows again and again. Try again."
        return RowsLocked(detail, waited_seconds=ran_seconds)  # the database works
    if (
        is_connection_lost(error)
        or _code(error).startswith((*_UNAVAILABLE_CLASSES, *_OPERATOR_CLASSES))
        or is_session_replaced(error)
    ):
        return to_store_unavailable(error)
    return error


def to_store_unavailable(error: BaseException) -> StoreUnavailable:
    if isinstance(error, StoreUnavailable):
        return error
    if _is_driver_internal(error):
        return StoreUnavailable(
            "The database cannot be used now: the connection was lost. Try again."
        )  # the driver's words are internals
    if is_session_replaced(error):
        return StoreUnavailable(SESSIONS_NOT_KEPT, needs_operator=True)  # the driver's advice does not suffice
    reason = _describe(error)
    if advice := _find_fault_of_url(error):
        return StoreUnavailable(f"{advice}: {reason}.", needs_operator=True)
    if _code(error).startswith(_OPERATOR_CLASSES):
        return StoreUnavailable(f"PostgreSQL refuses: {reason}.", needs_operator=True)
    detail = f"The database cannot be used now: {reason}. Try again."
    is_locked = _code(error) == _LOCK_NOT_AVAILABLE
    return RowsLocked(detail, waited_seconds=LOCK_TIMEOUT_SECONDS) if is_locked else StoreUnavailable(detail)


def _find_fault_of_url(error: BaseException) -> str | None:
    """What an operator must change about the URL, in the words before the reason."""
    if _UNSUPPORTED_AT_START in str(error):
        return "Remove a parameter of the database URL that the pooler does not know; ALTER ROLE … SET may replace it"
    if _code(error) in _SETTING_CODES:
        return "Remove or correct a parameter of the database URL, which PostgreSQL takes for a setting"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "Correct sslrootcert or the host of the database URL, or the certificate of PostgreSQL"
    if isinstance(error, ConnectionError) and _NO_TLS in str(error):
        return "The sslmode of the database URL needs TLS, which PostgreSQL does not offer. Set ssl = on, or correct it"
    return "The database URL is not valid" if isinstance(error, asyncpg.ClientConfigurationError) else None


def _describe(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no Unix socket of PostgreSQL at this place, so it does not run or its URL is wrong"
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "no server of the database URL is one that its target_session_attrs asks for"
    if isinstance(error, TimeoutError):
        return str(error) or "it did not answer in time"
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _is_driver_internal(error: BaseException) -> bool:
    """Whether the driver raised this about a connection that it lost, rather than the server or the system."""
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return False
    return isinstance(error, asyncpg.ConnectionDoesNotExistError | EOFError) or (
        isinstance(error, asyncpg.InternalClientError | asyncpg.InterfaceError) and is_connection_lost(error)
    )


def _code(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""
