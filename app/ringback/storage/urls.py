"""Database URLs: which store they name, and how they are shown without the password.

sqlite:///relative.db   sqlite:////absolute.db   a bare path
postgresql://user:password@host:5432/database?sslmode=require   (also postgres://)
"""

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from ringback.domain.errors import StoreUnavailable
from ringback.storage.url_parameters import find_parameter_fault

SQLITE_URL_PREFIX: Final = "sqlite:///"
_POSTGRES_SCHEMES: Final = frozenset({"postgres", "postgresql"})
_SECRET_PARAMETERS: Final = frozenset({"password", "passfile", "sslpassword"})
"""Query parameters of libpq that are secrets, or lead to one."""
_ACCOUNT_NAME_END: Final = re.compile(r"[:/?#]")
_BRACKETS: Final = re.compile(r"[\[\]]")
_BROKEN_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%a-z]+\]|[^\[\]:\s]*)(?::(?P<port>[0-9]{1,5}))?")
"""Empty, if the host is a parameter: a socket's folder."""
PORT_MAX: Final = 65_535
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_ENCODING: Final = (
    "In the user and the password, write these characters encoded: % as %25, / as %2F, ? as %3F, # as %23, @ as %40, : as %3A, "
    "[ as %5B, ] as %5D."
)
_EXAMPLES: Final = "sqlite:///ringback.db or postgresql://user:password@host/database"


def is_postgres_url(url: str) -> bool:
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme in _POSTGRES_SCHEMES


def find_sqlite_path(url: str) -> Path | None:
    """The file that the URL names; None for PostgreSQL. Raises `StoreUnavailable`, which never contains the URL.

    Of a symbolic link it is the file behind it: SQLite keeps the log there, too, and the file has one lock, whatever name it is
    opened by.
    """
    path = find_named_path(url)
    is_link = path is not None and os.path.islink(path)  # noqa: PTH114 - Path's raises in a folder of another user
    return Path(os.path.realpath(path)) if path is not None and is_link else path


def find_named_path(url: str) -> Path | None:
    """The path that the URL names, which may be a symbolic link; None for PostgreSQL. Raises `StoreUnavailable`."""
    scheme, separator, _ = url.partition("://")
    if is_postgres_url(url):
        if fault := _find_fault(url):
            raise StoreUnavailable(f"The database URL is not valid: {fault}", needs_operator=True)
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


def _find_fault(url: str) -> str | None:
    """What is wrong with a PostgreSQL URL, in words that repeat none of it; None for a valid one."""
    rest = url.partition("://")[2]
    netloc, path, query = _split_place(rest)
    account, _, hosts = netloc.rpartition("@")
    if "#" in rest or "@" in path or account.count("@") or _BRACKETS.search(account):
        return _ENCODING
    if _BROKEN_PERCENT.search(netloc + path + query):
        return f"a % is not followed by two hexadecimal digits. {_ENCODING}"
    if not all(_is_host(host) for host in hosts.split(",")):
        return f"the host is not of the form HOST or HOST:PORT. {_ENCODING}"
    return _find_fault_of_query(query)


def _split_place(rest: str) -> tuple[str, str, str]:
    """The account with the hosts, the path, and the query."""
    place, _, query = rest.partition("?")
    netloc, _, path = place.partition("/")
    return netloc, path, query


def _is_host(text: str) -> bool:
    found = _HOST.fullmatch(text)
    return found is not None and (found["port"] is None or 0 < int(found["port"]) <= PORT_MAX)


def _find_fault_of_query(query: str) -> str | None:
    values = dict(parse_qsl(query, keep_blank_values=True))
    if query and any("=" not in part for part in query.split("&")):
        return f"its parameters are not of the form ?name=value&name=value. {_ENCODING}"
    if values.get("sslmode", "require") not in _SSL_MODES:
        return f"sslmode is one of {', '.join(_SSL_MODES)}."
    if not all(port.isdecimal() for port in values.get("port", "1").split(",")):
        return "the port is not a number."
    return find_parameter_fault(values)


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
    parameters = urlencode(shown, quote_via=quote)  # for libpq a `+` is no space
    return f"{scheme}://{_ACCOUNT_NAME_END.split(account)[0]}{at}{place}{question_mark if shown else ''}{parameters}"


def locate_database(url: str) -> str:
    """The same with the whole path: a relative one depends on the folder, which differs between a service and a shell."""
    return describe_database(url) if is_postgres_url(url) else str(Path(describe_database(url)).absolute())
