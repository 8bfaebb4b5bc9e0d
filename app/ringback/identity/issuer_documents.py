"""Fetches the documents that an issuer publishes. The operator configures the URL; the content is untrusted."""

import asyncio
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx

from ringback.domain import jsontext
from ringback.domain.validation import is_loopback
from ringback.identity.resolving_transport import ResolvingTransport
from ringback.notifier.configured_hosts import LookUp
from ringback.notifier.http.authorities import USUAL_AUTHORITIES, TrustedAuthorities

FETCH_TIMEOUT_SECONDS: Final = 5.0
"""For one document, from DNS to its last byte. Short, because requests wait for it."""
DOCUMENT_BYTES_MAX: Final = 256 * 1024
"""A key set with ten certificate chains has 50 KB; discovery documents have less than 10 KB."""


class IssuerDocumentError(Exception):
    """The document at a URL is unusable. The message says why, and contains nothing of the document."""


def is_trusted_url(url: str) -> bool:
    """Whether the network cannot alter what is fetched from the URL: it is https, or on this machine."""
    try:
        url.encode()
        split_url = urlsplit(url)
        host, _ = split_url.hostname, split_url.port
    except ValueError:  # a lone surrogate, an invalid address, a port that is none
        return False
    return bool(host) and (split_url.scheme == "https" or (split_url.scheme == "http" and is_loopback(host or "")))


def create_issuer_client(look_up: LookUp, authorities: TrustedAuthorities = USUAL_AUTHORITIES) -> httpx.AsyncClient:
    """A client for the issuer only: no redirects, no kept connections, no cookies, no proxy from the environment."""
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    tls = authorities.add_to(httpx.create_ssl_context(trust_env=False))
    connections = httpx.AsyncHTTPTransport(
        verify=tls, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
    )
    return httpx.AsyncClient(
        transport=ResolvingTransport(connections, look_up=look_up),
        headers=headers,
        follow_redirects=False,
        trust_env=False,
        timeout=FETCH_TIMEOUT_SECONDS,
    )


async def fetch_json_object(http: httpx.AsyncClient, url: str) -> dict[str, Any] | None:
    """The JSON object at this URL, or None if it is not there; raises `IssuerDocumentError`.

    Servers that publish no document of a kind refuse its URL with various 4xx. 429 says nothing about what they publish.
    """
    if not is_trusted_url(url):
        raise IssuerDocumentError("It is neither https nor on this machine.")
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_SECONDS), http.stream("GET", url) as response:
            if response.is_client_error and response.status_code != HTTPStatus.TOO_MANY_REQUESTS:
                return None
            if response.status_code != HTTPStatus.OK:
                raise IssuerDocumentError(f"Its server responded with HTTP {response.status_code}.")
            return await read_json_response(response)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as problem:
        raise IssuerDocumentError(f"It could not be fetched ({type(problem).__name__}).") from None


async def read_json_response(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of a streamed response; raises `IssuerDocumentError`."""
    return _parse_object(await _read_body(response))


async def _read_body(response: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > DOCUMENT_BYTES_MAX:
            raise IssuerDocumentError(f"It is larger than {DOCUMENT_BYTES_MAX} bytes.")
    return bytes(body)


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        value = jsontext.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise IssuerDocumentError("It is not a JSON object.")
    return cast("dict[str, Any]", value)
