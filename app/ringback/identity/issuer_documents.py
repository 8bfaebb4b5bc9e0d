"""Fetching what an issuer publishes about itself. Its URL comes from the operator, what is at it from the network."""

import asyncio
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx

from ringback.domain import jsontext
from ringback.domain.validation import is_loopback
from ringback.identity.resolving_transport import ResolvingTransport
from ringback.notifier.configured_hosts import LookUp

FETCH_TIMEOUT_SECONDS: Final = 5.0
"""For one document, from DNS to its last byte. Requests wait for it, so it is short."""
DOCUMENT_BYTES_MAX: Final = 256 * 1024
"""A key set with ten certificate chains takes 50 KB; discovery documents take less than 10."""


class IssuerDocumentError(Exception):
    """What is at a URL cannot be used; the message says why, and shows nothing of it."""


def is_trusted_url(url: str) -> bool:
    """Whether what is fetched from there is what its owner published: https, or this machine."""
    try:
        split_url = urlsplit(url)
        host = split_url.hostname
    except ValueError:
        return False
    return bool(host) and (split_url.scheme == "https" or (split_url.scheme == "http" and is_loopback(host or "")))


def create_issuer_client(look_up: LookUp) -> httpx.AsyncClient:
    """For the issuer only: nothing is followed, kept or sent along, and no proxy of the environment's comes between."""
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    connections = httpx.AsyncHTTPTransport(trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))
    return httpx.AsyncClient(
        transport=ResolvingTransport(connections, look_up=look_up),
        headers=headers,
        follow_redirects=False,
        trust_env=False,
        timeout=FETCH_TIMEOUT_SECONDS,
    )


async def fetch_json_object(http: httpx.AsyncClient, url: str) -> dict[str, Any] | None:
    """The JSON object at this URL, None where there is nothing (404); raises `NoDocument`."""
    if not is_trusted_url(url):
        raise IssuerDocumentError("It is neither https nor on this machine.")
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_SECONDS), http.stream("GET", url) as response:
            if response.status_code == HTTPStatus.NOT_FOUND:
                return None
            if response.status_code != HTTPStatus.OK:
                raise IssuerDocumentError(f"It answered with HTTP {response.status_code}.")
            return _parse_object(await _read_body(response))
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as problem:
        raise IssuerDocumentError(f"It could not be fetched ({type(problem).__name__}).") from None


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
