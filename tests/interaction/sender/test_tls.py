"""Callbacks over real TLS: the certificate must be valid for the judged name, and each failure has its own category."""

import ssl

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.sender import Sender
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS, let_deadline_pass
from tests.support.receivers import (
    NO_CONTENT,
    AcceptedConnection,
    CertificateAuthority,
    close_at_once,
    never_read,
    respond_in_turn,
    respond_with,
    serving_receiver,
)
from tests.support.resolvers import LOOPBACK_POLICY, FakeResolver, loopback_target


async def test_a_certificate_for_the_name_is_accepted_and_the_name_is_kept(
    http1_sender: Http1Sender, certificates: CertificateAuthority
) -> None:
    async with serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("receiver.test")) as receiver:
        answer = await http1_sender.post(loopback_target(receiver.url(host="receiver.test")), {}, b"{}")

    assert answer.category is AttemptCategory.DELIVERED
    assert receiver.requests[0].headers["host"] == f"receiver.test:{receiver.port}"


async def test_a_certificate_for_the_address_is_accepted(sender: Sender, certificates: CertificateAuthority) -> None:
    async with serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("127.0.0.1")) as receiver:
        answer = await sender.post(loopback_target(receiver.url()), {}, b"{}")

    assert answer.category is AttemptCategory.DELIVERED


@pytest.mark.requirement("R26")
async def test_a_certificate_for_another_name_is_refused(
    http1_sender: Http1Sender, certificates: CertificateAuthority
) -> None:
    async with serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("receiver.test")) as receiver:
        answer = await http1_sender.post(loopback_target(receiver.url(host="other.test")), {}, b"{}")

    assert answer.category is AttemptCategory.CERTIFICATE_NAME_MISMATCH
    assert "other.test" in (answer.detail or "")
    assert receiver.requests == []


async def test_a_certificate_of_an_unknown_authority_is_refused(sender: Sender) -> None:
    async with serving_receiver(respond_with(NO_CONTENT), tls=CertificateAuthority().server("127.0.0.1")) as receiver:
        answer = await sender.post(loopback_target(receiver.url()), {}, b"{}")

    assert answer.category is AttemptCategory.CERTIFICATE_UNTRUSTED
    assert receiver.requests == []


async def test_an_expired_certificate_is_refused(sender: Sender, certificates: CertificateAuthority) -> None:
    async with serving_receiver(
        respond_with(NO_CONTENT), tls=certificates.server("127.0.0.1", expired=True)
    ) as receiver:
        answer = await sender.post(loopback_target(receiver.url()), {}, b"{}")

    assert (answer.category, answer.detail) == (
        AttemptCategory.CERTIFICATE_EXPIRED,
        "certificate has expired",
    )
    assert receiver.requests == []


async def test_plain_http_where_tls_is_expected_is_a_tls_error(sender: Sender) -> None:
    async with serving_receiver(_speaks_first) as receiver:
        url = f"https://127.0.0.1:{receiver.port}/"
        answer = await sender.post(loopback_target(url), {}, b"{}")

    assert answer.category is AttemptCategory.TLS_ERROR


async def test_a_handshake_that_never_begins_times_out(http1_sender: Http1Sender) -> None:
    async with serving_receiver(never_read) as receiver:
        url = f"https://127.0.0.1:{receiver.port}/"
        answer = await let_deadline_pass(
            lambda seconds: http1_sender.post(loopback_target(url), {}, b"{}", deadline_seconds=seconds),
            until=lambda late: late.category is not AttemptCategory.CONNECT_TIMEOUT,
        )

    assert answer.category is AttemptCategory.TLS_TIMEOUT


async def test_a_handshake_that_breaks_off_is_a_failure_of_the_connection(sender: Sender) -> None:
    async with serving_receiver(close_at_once) as receiver:
        url = f"https://127.0.0.1:{receiver.port}/"
        answer = await sender.post(loopback_target(url), {}, b"{}", deadline_seconds=WAIT_SECONDS)

    assert answer.category in {AttemptCategory.CONNECTION_BROKEN, AttemptCategory.TLS_ERROR}


async def test_a_receiver_that_demands_our_certificate_is_a_failure(
    sender: Sender, certificates: CertificateAuthority
) -> None:
    """On TLS 1.3 the refusal comes after the handshake, in the place of an answer: as an alert or as a bare reset."""
    demanding = certificates.server("127.0.0.1")
    demanding.verify_mode = ssl.CERT_REQUIRED
    async with serving_receiver(respond_with(NO_CONTENT), tls=demanding) as receiver:
        answer = await sender.post(loopback_target(receiver.url()), {}, b"{}")

    assert answer.category in {AttemptCategory.CONNECTION_BROKEN, AttemptCategory.CLIENT_CERTIFICATE_REFUSED}


async def test_a_tls_connection_is_kept_and_survives_a_stale_one(
    http1_sender: Http1Sender, certificates: CertificateAuthority
) -> None:
    async with serving_receiver(respond_in_turn(NO_CONTENT), tls=certificates.server("127.0.0.1")) as receiver:
        target = loopback_target(receiver.url())
        answers = [await http1_sender.post(target, {}, b"{}") for _ in range(3)]

    assert {answer.category for answer in answers} == {AttemptCategory.DELIVERED}
    assert receiver.connections == 3


async def test_one_tls_connection_carries_one_post_after_the_other(
    http1_sender: Http1Sender, certificates: CertificateAuthority
) -> None:
    async with serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("127.0.0.1")) as receiver:
        for _ in range(5):
            assert (
                await http1_sender.post(loopback_target(receiver.url()), {}, b"{}")
            ).category is AttemptCategory.DELIVERED

        assert receiver.connections == 1


async def test_the_machines_own_trust_is_the_default() -> None:
    """A test authority is unknown to it, so a sender made without a context refuses."""
    sender = Http1Sender(TargetGuard(LOOPBACK_POLICY, resolver=FakeResolver({})), clock=FakeClock())
    async with serving_receiver(respond_with(NO_CONTENT), tls=CertificateAuthority().server("127.0.0.1")) as receiver:
        answer = await sender.post(loopback_target(receiver.url()), {}, b"{}")
    await sender.aclose()

    assert answer.category is AttemptCategory.CERTIFICATE_UNTRUSTED


async def _speaks_first(connection: AcceptedConnection) -> None:
    await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\nThis is no TLS.\r\n")
    await connection.reader.read()
