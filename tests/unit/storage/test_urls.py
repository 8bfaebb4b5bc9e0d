"""A database URL names an SQLite file or a PostgreSQL database, and is shown without its password."""

from pathlib import Path

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.storage.urls import (
    describe_database,
    find_sqlite_path,
    is_postgres_url,
    locate_database,
    require_sqlite_path,
)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///ringback.db", "ringback.db"),
        ("sqlite:////var/lib/ringback.db", "/var/lib/ringback.db"),
        ("data/ringback.db", "data/ringback.db"),
        ("/var/lib/ringback.db", "/var/lib/ringback.db"),
    ],
)
def test_a_url_or_a_path_names_the_file(url: str, path: str) -> None:
    assert find_sqlite_path(url) == Path(path)
    assert require_sqlite_path(url) == Path(path)
    assert describe_database(url) == path
    assert locate_database(url) == str(Path(path).absolute())
    assert not is_postgres_url(url)


@pytest.mark.parametrize("url", ["postgresql://user:secret@db/ringback", "postgres://db/ringback"])
def test_a_postgresql_url_names_no_file(url: str) -> None:
    assert is_postgres_url(url)
    assert find_sqlite_path(url) is None
    with pytest.raises(StoreUnavailable, match=r"sqlite:///ringback\.db") as refusal:
        require_sqlite_path(url)
    assert "secret" not in refusal.value.detail


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql+asyncpg://user:secret@db/ringback", "without a driver: postgresql://"),
        ("mysql://user:secret@db/ringback", r"Use one of these: sqlite:///ringback\.db or postgresql://"),
        ("sqlite://ringback.db", "is not supported"),
        ("sqlite:///", "must be a file"),
        ("", "must be a file"),
        (":memory:", "must be a file"),
    ],
)
def test_a_url_that_cannot_be_opened_is_refused_with_a_url_to_use_instead(url: str, expected: str) -> None:
    with pytest.raises(StoreUnavailable, match=expected) as refusal:
        find_sqlite_path(url)

    assert refusal.value.needs_operator
    assert "secret" not in refusal.value.detail


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:secret@db:5433/ringback", "postgresql://user@db:5433/ringback"),
        ("postgresql://user:s:e@cret@db/ringback", "postgresql://user@db/ringback"),
        (
            "postgresql://db/ringback?user=ann&password=secret&sslmode=require",
            "postgresql://db/ringback?user=ann&sslmode=require",
        ),
        (
            "postgresql://user:secret@/ringback?host=/run/postgresql",
            "postgresql://user@/ringback?host=%2Frun%2Fpostgresql",
        ),
        ("postgresql://user:se/cret?#@db/ringback", "postgresql://user@db/ringback"),
        ("postgresql://db/ringback?password=secret@", "postgresql://db@"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert describe_database(url) == shown


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:hidden@h:notaport/rb", "HOST:PORT"),
        ("postgresql://u:hidden@h:70000/rb", "HOST:PORT"),
        ("postgresql://u:hidden@[::1/rb", "HOST:PORT"),
        ("postgresql://u:hid/den@h/rb", "/ as %2F"),
        ("postgresql://u:1/hidden@h/rb", "/ as %2F"),
        ("postgresql://u:hid?den@h/rb", r"\? as %3F"),
        ("postgresql://u:hid#den@h/rb", "# as %23"),
        ("postgresql://u:hid@den@h/rb", "@ as %40"),
        ("postgresql://u:hid[den@h/rb", r"\[ as %5B"),
        ("postgresql://u:hid%-den@h/rb", "% as %25"),
        ("postgresql://u:hidden@h/rb?sslmode=sometimes", "sslmode is one of disable"),
        ("postgresql://u:hidden@h/rb?sslmode", "name=value"),
        ("postgresql://u:hidden@h/rb?port=many", "port is not a number"),
    ],
)
def test_a_malformed_postgresql_url_is_refused_without_its_password(url: str, expected: str) -> None:
    with pytest.raises(StoreUnavailable, match=expected) as refusal:
        find_sqlite_path(url)

    assert refusal.value.needs_operator
    assert not any(word in refusal.value.detail for word in ("hid", "den@", "sometimes", "notaport"))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hid%2Fden%23@h:5432/rb?sslmode=verify-full&application_name=a",
        "postgresql://u@[::1]:5432/rb",
        "postgresql://u@one:5432,two:5433/rb?target_session_attrs=read-write",
        "postgresql://u@%2Ftmp%2Fserver/rb",
        "postgresql:///rb?host=/tmp/server&port=5433",
        "postgresql://u:a:b@h/rb",
    ],
)
def test_a_valid_postgresql_url_is_accepted(url: str) -> None:
    assert find_sqlite_path(url) is None
