"""RINGBACK_CA_FILE: an authority of the operator's own signs the certificates of upstreams, receivers and the issuer."""

from pathlib import Path

import pytest

from ringback.settings import SettingsError
from tests.support.application import SECRET, running_application
from tests.support.receivers import NO_CONTENT, CertificateAuthority, respond_with, serving_receiver
from tests.support.token_issuer import FakeTokenIssuer
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

PUBLIC_URL = "https://ringback.example"


async def test_the_loop_runs_over_certificates_of_a_private_authority(tmp_path: Path) -> None:
    authority, issuer = CertificateAuthority(), FakeTokenIssuer()
    tls = authority.server("127.0.0.1")
    async with (
        serving(ControlledUpstream().app(), tls=tls) as upstream,
        serving(issuer, tls=tls) as issuing,
        serving_receiver(respond_with(NO_CONTENT), tls=tls) as receiver,
        running_application(
            tmp_path,
            make_http_config(upstream.url),
            ca_file=authority.write_file(tmp_path / "ca.pem"),
            oidc_issuer=issuing.origin,
        ) as ringback,
    ):
        issuer.url = issuing.origin
        agent = await ringback.client(
            api_key=issuer.sign_token(aud=PUBLIC_URL, scope="ringback:calls ringback:webhooks")
        )
        started = await agent.start_call("stage", "echo", {}, callback={"url": receiver.url(), "secret": SECRET})
        (callback,) = await receiver.wait_for_requests(1)

    assert callback.headers["webhook-id"].startswith("evt_")
    assert started.call.id.encode() in callback.body
    assert b'"outcome":"result"' in callback.body


async def test_a_bundle_may_have_comments_in_any_language(tmp_path: Path) -> None:
    file = CertificateAuthority().write_file(tmp_path / "ca.pem")
    file.write_text(f"# Főtanúsítvány\n{file.read_text(encoding='ascii')}", encoding="utf-8")

    async with running_application(tmp_path, ca_file=file):
        pass


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file"),
        ("", "no certificate"),
        ("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n", "damaged"),
        ("\xff\xfe", "no certificate"),
    ],
    ids=["missing", "empty", "damaged", "no text"],
)
async def test_an_unusable_file_refuses_the_start_with_words(tmp_path: Path, content: str | None, reason: str) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content, encoding="latin-1")

    with pytest.raises(SettingsError, match=rf"RINGBACK_CA_FILE: .*ca\.pem .*{reason}"):
        async with running_application(tmp_path, ca_file=file):
            pass


async def test_the_certificate_of_a_server_is_not_that_of_an_authority(tmp_path: Path) -> None:
    file = CertificateAuthority().write_server_file(tmp_path / "server.pem", "127.0.0.1")

    with pytest.raises(SettingsError, match="only certificates of servers"):
        async with running_application(tmp_path, ca_file=file):
            pass
