"""Database URLs: which store they name, and how they are shown without the password.

sqlite:///relative.db   sqlite:////absolute.db   a bare path
postgresql://user:password@host:5432/database?sslmode=require   (also postgres://)
"""

import re
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode

from ringback.domain.errors import StoreUnavailable

SQLITE_URL_PREFIX: Final = "sqlite:///"
_POSTGRES_SCHEMES: Final = frozenset({"postgres", "postgresql"})
_SECRET_PARAMETERS: Final = frozenset({"password", "passfile", "sslpassword"})
"""Query parameters of libpq that are secrets, or lead to one."""
_ACCOUNT_NAME_END: Final = re.compile(r"[:/?#]")
_EXAMPLES: Final = "sqlite:///ringback.db or postgresql://user:password@host/database"


def is_postgres_url(url: str) -> bool:
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme in _POSTGRES_SCHEMES


def find_sqlite_path(url: str) -> Path | None:
    """The file that the URL names; None for PostgreSQL. Raises `StoreUnavailable`, which never contains the URL."""
    scheme, separator, _ = url.partition("://")
    if is_postgres_url(url):
        return None
    if separator and scheme.partition("+")[0] in _POSTGRES_SCHEMES:
        raise StoreUnavailable(
            "Write the database URL without a driver: postgresql://user:password@host/database", needs_operator=True
        )
    if separator and not url.startswith(SQLITE_URL_PREFIX):
        raise StoreUnavailable(
            f"This kind of database URL is not supported. Use one of these: {_EXAMPLES}", needs_operator=True
        )
    path = url.removeprefix(SQLITE_URL_PREFIX)
    if path in {"", ":memory:"}:
        raise StoreUnavailable(
            "The database must be a file, because calls outlive the process: sqlite:///ringback.db", needs_operator=True
        )
    return Path(path)


def require_sqlite_path(url: str) -> Path:
    """The same, for what only SQLite can do."""
    path = find_sqlite_path(url)
    if path is None:
        raise StoreUnavailable("This needs an SQLite database: sqlite:///ringback.db", needs_operator=True)
    return path


def describe_database(url: str) -> str:
    """The database for messages and logs: the path, or the URL without its password, also if that is not encoded as it must."""
    if not is_postgres_url(url):
        return url.removeprefix(SQLITE_URL_PREFIX)
    scheme, _, rest = url.partition("://")
    account, at, place = rest.rpartition("@")
    place, question_mark, query = place.partition("#")[0].partition("?")
    shown = [(name, value) for name, value in parse_qsl(query) if name not in _SECRET_PARAMETERS]
    return (
        f"{scheme}://{_ACCOUNT_NAME_END.split(account)[0]}{at}{place}{question_mark if shown else ''}{urlencode(shown)}"
    )
