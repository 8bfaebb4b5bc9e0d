"""A URL that works with psql works here: parameters of libpq are understood, left out, or refused with what to change."""

import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qsl

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.storage.url_parameters import find_missing_file, to_driver_url, to_libpq_url
from ringback.storage.urls import find_sqlite_path

PLACE = "postgresql://u:s%2F@h/rb"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGSSLCRL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "query",
    [
        "connect_timeout=10",
        "keepalives=1&keepalives_idle=30&keepalives_interval=5&keepalives_count=3&tcp_user_timeout=5000",
        "application_name=billing&fallback_application_name=x",
        "channel_binding=prefer&gssencmode=disable",
    ],
)
def test_a_parameter_for_which_ringback_has_a_value_of_its_own_does_not_reach_the_driver(query: str) -> None:
    assert find_sqlite_path(f"{PLACE}?{query}") is None
    assert to_driver_url(f"{PLACE}?{query}") == PLACE
    assert to_driver_url(f"{PLACE}?{query}&target_session_attrs=any") == f"{PLACE}?target_session_attrs=any"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sslmode=require&channel_binding=require", "write sslmode=verify-full and sslrootcert=system"),
        ("pgbouncer=true", r"pgbouncer is a parameter of other programs\. Remove it"),
        ("hostaddr=10.0.0.1", r"hostaddr is not supported\. Remove it"),
        ("sslmode=require&sslrootcert=system", "sslrootcert=system needs sslmode=verify-full"),
    ],
)
def test_a_parameter_that_cannot_be_kept_needs_an_operator(query: str, expected: str) -> None:
    with pytest.raises(StoreUnavailable, match=expected) as refused:
        find_sqlite_path(f"{PLACE}?{query}")

    assert refused.value.needs_operator


@pytest.mark.parametrize("convert", [to_driver_url, to_libpq_url])
def test_the_authorities_of_the_machine_are_a_file_to_the_driver_and_to_every_libpq(
    convert: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: SimpleNamespace(cafile="/etc/authorities.pem"))

    for query in ("sslrootcert=system", "sslmode=verify-full&sslrootcert=system"):
        found = convert(f"{PLACE}?{query}")
        assert dict(parse_qsl(found.partition("?")[2])) == {
            "sslmode": "verify-full",
            "sslrootcert": "/etc/authorities.pem",
        }
        assert find_missing_file(f"{PLACE}?{query}") is None


def test_a_machine_without_authorities_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: SimpleNamespace(cafile=None))

    assert "has no file of authorities" in str(find_missing_file(f"{PLACE}?sslrootcert=system"))


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslkey", "sslcrl"])
def test_a_missing_file_of_certificates_is_named_by_its_parameter(name: str, tmp_path: Path) -> None:
    file = tmp_path / "file.pem"
    url = f"{PLACE}?sslmode=require&{name}={file}"

    assert str(find_missing_file(url)).startswith(f"{name} (PG{name.upper()}) names a file that does not exist")
    file.touch()
    assert find_missing_file(url) is None


def test_a_verifying_mode_needs_an_authority(tmp_path: Path) -> None:
    url = f"{PLACE}?sslmode=verify-full"

    assert "sslrootcert=system" in str(find_missing_file(url, home=tmp_path))
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / "root.crt").touch()
    assert find_missing_file(url, home=tmp_path) is None
    assert find_missing_file(f"{PLACE}?sslmode=require", home=tmp_path) is None


def test_a_verifying_mode_of_a_user_without_a_home_folder_needs_a_named_authority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find_no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", find_no_home)

    assert "needs an authority to trust" in str(find_missing_file(f"{PLACE}?sslmode=verify-full"))


def test_the_programs_of_postgresql_get_only_the_parameters_of_libpq() -> None:
    kept = "sslmode=verify-full&sslrootcert=ca.pem&connect_timeout=10&channel_binding=prefer"

    assert to_libpq_url(f"{PLACE}?jit=off&{kept}&statement_timeout=60s") == f"{PLACE}?{kept}"
    assert to_libpq_url(f"{PLACE}?jit=off") == PLACE
