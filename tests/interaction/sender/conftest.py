"""The two senders, made alike: what both must do is asked of both."""

import ssl
from collections.abc import AsyncIterator

import httpx
import pytest

from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.httpx_sender import HttpxSender
from ringback.notifier.http.sender import Sender
from tests.support.clock import FakeClock
from tests.support.receivers import CertificateAuthority
from tests.support.resolvers import LOOPBACK_POLICY, FakeResolver

NAMES = {"receiver.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}


@pytest.fixture(scope="session")
def certificates() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture(scope="session")
def client_tls(certificates: CertificateAuthority) -> ssl.SSLContext:
    return certificates.client()


@pytest.fixture
async def http1_sender(client_tls: ssl.SSLContext) -> AsyncIterator[Http1Sender]:
    guard = TargetGuard(LOOPBACK_POLICY, resolver=FakeResolver(NAMES))
    sender = Http1Sender(guard, clock=FakeClock(), ssl_context=client_tls)
    yield sender
    await sender.aclose()


@pytest.fixture
async def httpx_sender(client_tls: ssl.SSLContext) -> AsyncIterator[HttpxSender]:
    sender = HttpxSender(httpx.AsyncHTTPTransport(verify=client_tls), clock=FakeClock())
    yield sender
    await sender.aclose()


@pytest.fixture(params=["http1", "httpx"])
def sender(request: pytest.FixtureRequest, http1_sender: Http1Sender, httpx_sender: HttpxSender) -> Sender:
    return {"http1": http1_sender, "httpx": httpx_sender}[request.param]
