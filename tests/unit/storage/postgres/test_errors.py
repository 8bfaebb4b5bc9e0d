"""The error that callers get when PostgreSQL cannot be used: one sentence, without the words of the driver."""

import ssl

import asyncpg
import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.storage.postgres.errors import to_caller_error, to_store_unavailable


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress"),
        asyncpg.InternalClientError("unexpected connection_lost() call"),
        asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
        asyncpg.InterfaceError("connection is closed"),
        EOFError(),
    ],
    ids=lambda error: str(error).partition(" (")[0] or "end of data",
)
def test_every_lost_connection_has_the_same_words(error: Exception) -> None:
    raised = to_caller_error(error)

    assert isinstance(raised, StoreUnavailable)
    assert raised.detail == "The database cannot be used now: the connection was lost. Try again."
    assert not raised.needs_operator


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            asyncpg.UndefinedObjectError('unrecognized configuration parameter "jti"'),
            'of the database URL, which PostgreSQL takes for a setting: unrecognized configuration parameter "jti".',
        ),
        (
            ssl.SSLCertVerificationError("self-signed certificate"),
            "Correct sslrootcert or the host of the database URL",
        ),
        (
            ConnectionError('PostgreSQL server at "h:1" rejected SSL upgrade'),
            "needs TLS, which PostgreSQL does not offer",
        ),
        (
            asyncpg.ClientConfigurationError("no such thing.", hint="Do it."),
            "The database URL is not valid: no such thing",
        ),
    ],
    ids=["setting", "certificate", "no TLS", "driver"],
)
def test_a_fault_of_the_url_needs_an_operator(error: Exception, expected: str) -> None:
    raised = to_store_unavailable(error)

    assert raised.needs_operator
    assert expected in raised.detail
    assert not any(wrong in raised.detail for wrong in ("..", "Try again", "\n"))


def test_a_database_that_does_not_answer_is_described_without_the_name_of_a_class() -> None:
    raised = to_caller_error(TimeoutError())

    assert isinstance(raised, StoreUnavailable)
    assert raised.detail == "The database cannot be used now: it did not answer in time. Try again."


def test_servers_that_only_read_are_not_called_a_lost_connection() -> None:
    raised = to_store_unavailable(asyncpg.TargetServerAttributeNotMatched("None of the hosts match"))

    assert "target_session_attrs asks for. Try again." in raised.detail
    assert not raised.needs_operator
