"""The error that callers get when PostgreSQL cannot be used: one sentence, without the words of the driver."""

import asyncpg
import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.storage.postgres.errors import to_caller_error


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
