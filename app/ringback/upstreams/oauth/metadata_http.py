"""Bounded HTTP requests to the servers that an upstream names: one response of JSON, no redirects, allowed addresses only."""

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlencode

import anyio
import httpx2

from ringback import __version__
from ringback.domain import jsontext
from ringback.domain.client_address import Network
from ringback.domain.upstream_logins import LoginFailed, LoginFailure
from ringback.notifier.configured_hosts import ConfiguredHosts, LookUp
from ringback.notifier.http.authorities import USUAL_AUTHORITIES, TrustedAuthorities
from ringback.notifier.http.guard import BlockedAddress
from ringback.notifier.http.target import PRIVATE_CIDRS_SETTING
from ringback.protocol.http_failures import read_bounded
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.oauth.challenge import Refusal, parse_refusal
from ringback.upstreams.oauth.endpoints import EndpointRules, GuardedLookUp
from ringback.upstreams.transports.http_pool import PooledHttpTransport, ssl_context

REQUEST_SECONDS: Final = 10.0
"""For a whole request, from the lookup to the end of the body: the same as the connect timeout of an upstream."""
BODY_BYTES_MAX: Final = 64 * 1024
"""Metadata has some kilobytes, with many scopes ten."""
_HEADERS: Final = {
    "user-agent": f"ringback/{__version__}",
    "accept": "application/json",
    "accept-encoding": "identity",
}
_MCP_ACCEPT: Final = "application/json, text/event-stream"
_PROBE: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
"""A request without an effect, which opens no session: a server that requires a token refuses it before it reads it."""
T = TypeVar("T")
OpenTransport = Callable[[str, LookUp], httpx2.AsyncBaseTransport]
"""A transport for one request to this URL, which connects to addresses of this lookup only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonResponse:
    status_code: int
    document: Mapping[str, Any] = field(repr=False)
    """Empty if the body is no JSON object."""


class MetadataHttp:
    """Requests for the login to one upstream. Methods raise `LoginFailed`: UNSAFE, UNREACHABLE or INVALID_RESPONSE."""

    def __init__(
        self,
        config: UpstreamConfig,
        rules: EndpointRules,
        *,
        look_up: LookUp,
        open_transport: OpenTransport,
    ) -> None:
        self._config = config
        self.rules = rules
        self._look_up = look_up
        self._open_transport = open_transport

    async def get_json(self, url: str) -> JsonResponse:
        return await self._send(httpx2.Request("GET", self.rules.require_safe_url(url), headers=_HEADERS))

    async def post_json(self, url: str, document: Mapping[str, Any]) -> JsonResponse:
        headers = {**_HEADERS, "content-type": "application/json"}
        content = jsontext.dumps(document)
        return await self._send(
            httpx2.Request("POST", self.rules.require_safe_url(url), headers=headers, content=content)
        )

    async def post_form(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> JsonResponse:
        sent = {**_HEADERS, "content-type": "application/x-www-form-urlencoded", **headers}
        content = urlencode(form).encode("ascii")
        return await self._send(httpx2.Request("POST", self.rules.require_safe_url(url), headers=sent, content=content))

    async def probe_upstream(self) -> Refusal:
        """What the upstream answers to a request without a login. It is sent like every other request to the upstream."""
        headers = {**_HEADERS, **self._config.headers, "accept": _MCP_ACCEPT, "content-type": "application/json"}
        request = httpx2.Request("POST", self._config.url, headers=headers, content=jsontext.dumps(_PROBE))
        return await self._exchange(request, self._look_up, _read_refusal)

    async def _send(self, request: httpx2.Request) -> JsonResponse:
        return await self._exchange(request, GuardedLookUp(self.rules, self._look_up), _read_json)

    async def _exchange(
        self, request: httpx2.Request, look_up: LookUp, read: Callable[[httpx2.Response], Awaitable[T]]
    ) -> T:
        transport = self._open_transport(str(request.url), look_up)
        try:
            with anyio.fail_after(REQUEST_SECONDS):
                return await read(await transport.handle_async_request(request))
        except (TimeoutError, httpx2.HTTPError) as error:
            raise _make_failure(error) from None
        finally:
            await transport.aclose()


class MetadataClients:
    """Makes the `MetadataHttp` of each upstream."""

    def __init__(
        self,
        hosts: ConfiguredHosts,
        *,
        authorities: TrustedAuthorities = USUAL_AUTHORITIES,
        allowed_networks: Sequence[Network] = (),
        open_transport: OpenTransport | None = None,
    ) -> None:
        self._hosts = hosts
        self._open_transport = open_transport or self._open_pooled_transport
        self._allowed_networks = allowed_networks
        self._get_https_context = functools.cache(lambda: ssl_context("https:", authorities))

    def get_client(self, config: UpstreamConfig) -> MetadataHttp:
        return MetadataHttp(
            config,
            EndpointRules.from_config(config, self._allowed_networks),
            look_up=self._hosts.look_up_for(config.name),
            open_transport=self._open_transport,
        )

    def _open_pooled_transport(self, url: str, look_up: LookUp) -> httpx2.AsyncBaseTransport:
        context = self._get_https_context() if url.startswith("https:") else ssl_context(url)
        return PooledHttpTransport(context, look_up=look_up)


async def _read_refusal(response: httpx2.Response) -> Refusal:
    return parse_refusal(response.status_code, response.headers.get_list("www-authenticate"))


async def _read_json(response: httpx2.Response) -> JsonResponse:
    body = await read_bounded(response, BODY_BYTES_MAX)
    if body is None:
        raise LoginFailed(
            LoginFailure.INVALID_RESPONSE,
            f"The authorization server, or the upstream, answered with more than {BODY_BYTES_MAX} bytes.",
        )
    return JsonResponse(status_code=response.status_code, document=_parse_object(body))


def _parse_object(body: bytes) -> Mapping[str, Any]:
    try:
        document = jsontext.loads(body)
    except ValueError:
        return {}
    return cast("dict[str, Any]", document) if isinstance(document, dict) else {}


def _make_failure(error: Exception) -> LoginFailed:
    if isinstance(error.__cause__, BlockedAddress):
        return LoginFailed(
            LoginFailure.UNSAFE,
            "The upstream or its authorization server names a server with a private address. Ringback does not connect to it. "
            f"If it is yours, allow its network: {PRIVATE_CIDRS_SETTING}.",
        )
    return LoginFailed(
        LoginFailure.UNREACHABLE,
        f"The upstream or its authorization server could not be reached ({type(error).__name__}). Try again later.",
    )
