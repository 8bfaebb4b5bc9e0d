"""`sslrootcert=system` checks the server's certificate by the authorities that the machine trusts, over real TLS."""

import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from ringback.storage.postgres.driver import connect
from ringback.storage.postgres.errors import to_store_unavailable
from tests.support.postgres import shared_postgres
from tests.support.postgres_databases import empty_database
from tests.support.postgres_tls import serving_tls

QUERY = "sslmode=verify-full&sslrootcert=system"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def tls_url(authority: trustme.CA) -> AsyncGenerator[str]:
    """The URL of an empty database, whose server has a certificate for `localhost`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)  # pyright: ignore[reportUnknownMemberType] - its hints are partial
    async with empty_database() as url:
        database = urlsplit(url).path.removeprefix("/")
        direct = urlsplit(shared_postgres().tcp_url(database))
        assert direct.port is not None
        async with serving_tls(context, direct.port) as port:
            yield direct._replace(netloc=f"{direct.netloc.rpartition('@')[0]}@localhost:{port}").geturl()


def trust(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the only authority of the machine."""
    file = tmp_path / "authorities.pem"
    authority.cert_pem.write_to_path(file)
    monkeypatch.setenv(ssl.get_default_verify_paths().openssl_cafile_env, str(file))


async def test_a_server_whose_authority_the_machine_trusts_is_used(
    tls_url: str, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(authority, tmp_path, monkeypatch)

    connection = await connect(f"{tls_url}?{QUERY}")

    (row,) = await connection.fetch("SELECT current_setting('application_name') AS name")
    assert row["name"] == "ringback"
    await connection.close()


async def test_a_server_of_another_authority_or_of_another_name_is_refused(
    tls_url: str, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(authority, tmp_path, monkeypatch)
    with pytest.raises(ssl.SSLCertVerificationError) as another_name:
        await connect(f"{tls_url.replace('@localhost:', '@127.0.0.1:')}?{QUERY}")

    trust(trustme.CA(), tmp_path, monkeypatch)
    with pytest.raises(ssl.SSLCertVerificationError) as another_authority:
        await connect(f"{tls_url}?{QUERY}")

    for refused in (another_name, another_authority):
        unavailable = to_store_unavailable(refused.value)
        assert unavailable.needs_operator
        assert unavailable.detail.startswith("Correct sslrootcert or the host of the database URL")
