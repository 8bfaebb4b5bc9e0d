"""The parameters of a PostgreSQL URL, as psql and hosting providers write them: for the driver, and for PostgreSQL's programs.

The driver knows some parameters of libpq and takes every other one for a setting of the server. A URL that works with psql
works here too: parameters for which Ringback has values of its own are left out, and those that it cannot keep are refused.
"""

import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, unquote_plus

_ENDPOINT: Final = frozenset({"host", "port", "dbname", "user", "password", "passfile", "service", "options"})
_TLS_FILES: Final = {"sslrootcert": "PGSSLROOTCERT", "sslcert": "PGSSLCERT", "sslkey": "PGSSLKEY", "sslcrl": "PGSSLCRL"}
"""Parameters that name a file, and the variable that the driver reads in the place of each."""
_UNDERSTOOD: Final = (
    _ENDPOINT
    | _TLS_FILES.keys()
    | {"sslmode", "sslnegotiation", "sslpassword", "ssl_min_protocol_version", "ssl_max_protocol_version"}
    | {"target_session_attrs", "krbsrvname", "gsslib"}
)
"""Parameters of libpq that the driver understands."""
_LEFT_OUT: Final = frozenset(
    {
        *("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
        *("tcp_user_timeout", "application_name", "fallback_application_name", "client_encoding", "load_balance_hosts"),
        *("sslcompression", "sslsni", "gssdelegation"),
    }
)
"""Parameters of libpq for which Ringback has a value of its own (`postgres.driver`), or which change nothing for it."""
_BINDING_ADVICE: Final = (
    "channel_binding=require is not supported. Remove it, and write sslmode=verify-full and sslrootcert=system (or the file of "
    "the server's authority): they too refuse a server that only pretends to be yours."
)
_KEPT_IF: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "channel_binding": (
        frozenset({"disable", "prefer"}),
        _BINDING_ADVICE,
    ),
    "gssencmode": (frozenset({"disable", "prefer"}), "gssencmode=require is not supported. Use sslmode=verify-full."),
    "sslcertmode": (frozenset({"disable", "allow"}), "sslcertmode=require is not supported. Remove it."),
}
"""Parameters that are left out with these values and refused with others, and the words for that."""
_REFUSED: Final = frozenset(
    {"hostaddr", "sslcrldir", "requirepeer", "require_auth", "servicefile", "replication", "requiressl"}
    | {"min_protocol_version", "max_protocol_version", "oauth_issuer", "oauth_client_id", "oauth_client_secret"}
    | {"scram_client_key", "scram_server_key", "sslkeylogfile"}
)
"""Parameters of libpq that nothing here keeps."""
LIBPQ_PARAMETERS: Final = _UNDERSTOOD | _LEFT_OUT | _KEPT_IF.keys()
_SYSTEM: Final = "system"
"""As `sslrootcert` of libpq 16: the authorities that the machine trusts."""
_VERIFYING: Final = frozenset({"verify-ca", "verify-full"})
_ROOT_ADVICE: Final = (
    "Name the PEM file of the authority that signed the server's certificate (sslrootcert=FILE), or the machine's authorities: "
    "sslrootcert=system"
)


def find_parameter_fault(values: Mapping[str, str]) -> str | None:
    """What an operator must change about the parameters, in words that repeat no value; None if nothing."""
    for name, value in values.items():
        if name in _REFUSED:
            return f"the parameter {name} is not supported. Remove it."
        if name == "pgbouncer":
            return "pgbouncer is a parameter of other programs. Remove it. The pooler must keep sessions: pool_mode = session"
        if name in _KEPT_IF and value not in _KEPT_IF[name][0]:
            return _KEPT_IF[name][1]
    if values.get("sslrootcert") == _SYSTEM and values.get("sslmode", "verify-full") != "verify-full":
        return "sslrootcert=system needs sslmode=verify-full: anyone can get a certificate of one of these authorities."
    return None


def find_missing_file(url: str, home: Path | None = None) -> str | None:
    """Which file of certificates the driver would not find, and what to do; None if none. `home` is that of the user."""
    values = _parse_values(url)
    mode = values.get("sslmode") or os.environ.get("PGSSLMODE", "")
    if values.get("sslrootcert") == _SYSTEM:
        return None if _find_system_authorities() else f"this machine has no file of authorities. {_ROOT_ADVICE}"
    if mode in {"", "disable"}:
        return None
    for name, variable in _TLS_FILES.items():
        file = values.get(name) or os.environ.get(variable)
        if file and not os.access(file, os.R_OK):
            return f"{name} ({variable}) names a file that does not exist or that this user cannot read."
    if mode in _VERIFYING and not (values.get("sslrootcert") or os.environ.get("PGSSLROOTCERT")):
        return None if _has_usual_authority(home) else f"sslmode={mode} needs an authority to trust. {_ROOT_ADVICE}"
    return None


def _has_usual_authority(home: Path | None) -> bool:
    """Whether the user has the file that libpq and the driver read by default."""
    try:
        folder = home or Path.home()
    except RuntimeError:  # a user without a home folder
        return False
    return os.access(folder / ".postgresql" / "root.crt", os.R_OK)


def to_driver_url(url: str) -> str:
    """The URL with the parameters that the driver understands, and settings of the server."""
    return _name_authorities(_keep_parameters(url, lambda name: name not in _LEFT_OUT and name not in _KEPT_IF))


def to_libpq_url(url: str) -> str:
    """The URL without settings of the server, which PostgreSQL's programs refuse."""
    return _name_authorities(_keep_parameters(url, lambda name: name in LIBPQ_PARAMETERS))


def _name_authorities(url: str) -> str:
    """The URL with the file of the machine's authorities: neither the driver nor libpq before 16 knows `system`."""
    if _parse_values(url).get("sslrootcert") != _SYSTEM:
        return url
    shown = _keep_parameters(url, lambda name: name not in {"sslrootcert", "sslmode"})
    separator = "&" if "?" in shown else "?"
    return f"{shown}{separator}sslmode=verify-full&sslrootcert={quote(_find_system_authorities() or _SYSTEM)}"


def _find_system_authorities() -> str | None:
    return ssl.get_default_verify_paths().cafile


def _parse_values(url: str) -> dict[str, str]:
    return dict(parse_qsl(url.partition("?")[2], keep_blank_values=True))


def _keep_parameters(url: str, is_kept: Callable[[str], bool]) -> str:
    place, _, query = url.partition("?")
    kept = [part for part in query.split("&") if part and is_kept(unquote_plus(part.partition("=")[0]))]
    return f"{place}?{'&'.join(kept)}" if kept else place
