"""The checks of `ringback doctor` over the network. Each finding of a fault says how to repair it."""

import asyncio
import socket
import ssl
from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum
from functools import partial
from typing import Final

import httpx

from ringback.bootstrap import load_authorities
from ringback.cli.http_clients import bypass_proxy_here, request_within_limit
from ringback.cli.installation_checks.database import CLOCK_SKEW_SECONDS_MAX, Finding, fault, fine, skip
from ringback.client import ClientError, RingbackClient, Webhook
from ringback.client.problems import PROBLEM_MEDIA_TYPE
from ringback.client.responses import find_tls_error
from ringback.domain.attempt_category import ADVICE, AttemptCategory
from ringback.domain.client_address import Address
from ringback.domain.clock import Clock
from ringback.domain.errors import InvalidCallbackUrl
from ringback.identity.issuer import fetch_issuer_keys
from ringback.identity.issuer_documents import IssuerDocumentError
from ringback.identity.issuer_documents import create_issuer_client as issuer_client
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.notifier.http.dialer import DIRECT_EGRESS, Egress, connect_any_address, connect_socket, open_socket
from ringback.notifier.http.failures import ProxyFailed
from ringback.notifier.http.guard import BlockedAddress, TargetGuard
from ringback.notifier.http.resolver import UnresolvedHost
from ringback.notifier.http.target import Target, parse_target
from ringback.settings import Settings

CHECK_TIMEOUT_SECONDS: Final = 5.0
CONNECTIONS_MAX: Final = 64
"""To receivers at once: a principal has up to a thousand of them, and a command's process usually 1,024 open files."""
CERTIFICATE_DAYS_MIN: Final = 7
"""Automatic renewal usually happens 30 days before the end."""
_DAY: Final = 86_400


async def check_issuer(settings: Settings) -> list[Finding]:
    """Whether the issuer publishes the keys that verify access tokens."""
    if settings.oidc_issuer is None or settings.auth == "off":
        return []
    authorities = load_authorities(settings)
    async with aclosing(ConfiguredHosts()) as hosts, issuer_client(hosts.look_up_for("issuer"), authorities) as http:
        try:
            keys = await fetch_issuer_keys(http, settings.oidc_issuer)
        except IssuerDocumentError as problem:
            detail = f"{settings.oidc_issuer} is unusable, so only API keys are accepted: {problem}"
            return [fault("token issuer", f"{detail} RINGBACK_OIDC_ISSUER must equal its tokens' iss.")]
    return [fine("token issuer", f"{settings.oidc_issuer} publishes {len(keys.keys)} keys")]


async def is_running(url: str) -> bool:
    """Whether a Ringback responds at this URL, ready or not."""
    try:
        response = await _get_url(f"{url}/healthz")
        return response.is_success and response.json() == {"status": "ok"}
    except (httpx.HTTPError, ValueError):
        return False


async def is_open(url: str) -> bool:
    """Whether the service at this URL runs without authentication: it answers what needs the scope admin without a key."""
    try:
        return (await _get_url(f"{url}/v1/status")).is_success
    except httpx.HTTPError:
        return False


class ServiceState(Enum):
    """How a server at the service's URL behaves. The doctor requests nothing more from one that does not respond."""

    RESPONDING = "responding"
    SILENT = "silent"
    """It accepts connections and sends no response: it hangs, or speaks something else."""
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class ServiceCheck:
    state: ServiceState
    findings: Sequence[Finding]


async def check_service(url: str, *, clock: Clock) -> ServiceCheck:
    """Whether the service responds and accepts work, and whether its clock agrees with this machine's."""
    try:
        response = await _get_url(f"{url}/readyz")
    except httpx.HTTPError as problem:
        is_absent = isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout) and find_tls_error(problem) is None
        state = ServiceState.ABSENT if is_absent else ServiceState.SILENT
        return ServiceCheck(state, [fault("service", _describe_silence(url, problem))])
    return ServiceCheck(ServiceState.RESPONDING, _check_response(url, response, clock))


def _check_response(url: str, response: httpx.Response, clock: Clock) -> list[Finding]:
    if not _is_ringback(response):  # its clock, or the Date of a cached page, says nothing about the service
        said = f"{url} responds with {response.status_code}, and not as Ringback"
        return [fault("service", f"{said}. Correct the URL, or the proxy before Ringback.")]
    return [_check_readiness(url, response), _check_clock(response, clock)]


def _is_ringback(response: httpx.Response) -> bool:
    """Whether the response to `/readyz` is Ringback's: that it is ready, or a problem that says why it is not."""
    if not response.is_success:
        return response.headers.get("content-type", "").startswith(PROBLEM_MEDIA_TYPE)
    try:
        return response.json()["status"] == "ready"
    except (ValueError, KeyError, TypeError):
        return False


def _describe_silence(url: str, problem: httpx.HTTPError) -> str:
    """Why there is no response. A start helps only if no process listens."""
    match problem:
        case httpx.ConnectError() if (tls := find_tls_error(problem)) is not None:
            reason = getattr(tls, "verify_message", "") or str(tls)
            return f"TLS fails at {url}: {reason}. Name the authority of its certificate in SSL_CERT_FILE, or correct the URL."
        case httpx.ConnectError() | httpx.ConnectTimeout():
            return f"No server responds at {url}. Start it: ringback serve"
        case httpx.TimeoutException():
            return (
                f"A server accepts connections at {url} and does not respond in time. Look into its log; if it stays so, "
                "restart it."
            )
        case _:
            return f"The server at {url} ends the connection without a response. Is this a Ringback?"


def _check_readiness(url: str, response: httpx.Response) -> Finding:
    if not response.is_success:
        return fault("service", f"{url} responds but is not ready: {_problem_detail(response)}")
    if (degraded := _degraded_endpoints(response)) == "clock":
        detail = (
            f"{url} accepts work. Its clock is more than a day ahead of its last process: after a long pause that is right. "
            "Otherwise correct the clock within five minutes of the start; until then nothing expires or times out."
        )
        return fine("service", detail)
    if degraded:
        if "role " in degraded:
            detail = (
                f"{url} accepts work, but no node runs what it waits for: {degraded} (RINGBACK_ROLES, serve --roles)."
            )
        elif "RINGBACK_SECRET_KEYS" in degraded:
            detail = (
                f"{url} accepts work, but lacks a key of other nodes. All nodes need the same RINGBACK_SECRET_KEYS."
            )
        else:
            detail = f"{url} accepts work, but {degraded} failed. Its log says why (mcp.endpoint_failed)."
        return fault("service", detail)
    return fine("service", f"{url} responds and accepts work")


def _check_clock(response: httpx.Response, clock: Clock) -> Finding:
    try:
        there = parsedate_to_datetime(response.headers.get("date", ""))
    except ValueError:
        return fault("clock", "The response has no Date header. Does a proxy remove it?")
    aware = there if there.tzinfo else there.replace(tzinfo=UTC)  # a proxy may write -0000
    skew = (aware - clock.wall_time()).total_seconds()
    if abs(skew) > CLOCK_SKEW_SECONDS_MAX:
        return fault(
            "clock",
            f"The service's clock is {skew:+.0f} s from this one. Synchronise both by NTP: signatures contain the time.",
        )
    return fine("clock", "the service's clock agrees with this machine's")


class CallbackCheck:
    """Whether the receivers of your webhooks are reachable, and for https whether TLS works. Sends no request."""

    def __init__(
        self, guard: TargetGuard, *, clock: Clock, tls: ssl.SSLContext, egress: Egress = DIRECT_EGRESS
    ) -> None:
        self._guard = guard
        self._clock = clock
        self._tls = tls
        self._egress = egress
        self._permits = asyncio.Semaphore(CONNECTIONS_MAX)

    async def run_checks(self, client: RingbackClient) -> list[Finding]:
        """One finding for each origin of a webhook URL, and for each webhook whose URL these settings do not allow."""
        judged: dict[str, Target | Finding] = {}
        served_origins: set[str] = set()
        try:
            async for webhook in client.webhooks():
                try:
                    target = parse_target(webhook.url, self._guard.policy)
                except InvalidCallbackUrl as refused:
                    about = f"callback {webhook.id}"
                    judged[about] = _judge_refusal(about, refused.detail, is_served=_is_served(webhook))
                    continue
                judged[target.origin] = target
                if _is_served(webhook):
                    served_origins.add(target.origin)
        except ClientError as problem:
            return [fault("callbacks", f"Your webhooks cannot be listed: {problem}")]
        return await asyncio.gather(*(self._check_target(each, served_origins) for each in judged.values()))

    async def _check_target(self, target: Target | Finding, served_origins: Collection[str]) -> Finding:
        if isinstance(target, Finding):
            return target
        about = f"callback {target.origin}"
        try:
            async with self._permits, asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                return Finding(about, *await self._connect_to_target(target))
        except BlockedAddress as blocked:
            return _judge_refusal(about, _describe_failure(blocked), is_served=target.origin in served_origins)
        except OSError as problem:
            return fault(about, _describe_failure(problem))

    async def _connect_to_target(self, target: Target) -> tuple[bool, str]:
        connected = await self._open_socket(target)
        tls = self._egress.client_contexts.get(target.origin, self._tls) if target.scheme == "https" else None
        _, writer = await asyncio.open_connection(
            sock=connected, ssl=tls, server_hostname=None if tls is None else target.host
        )
        certificate = writer.get_extra_info("peercert")
        writer.transport.abort()
        if certificate is None:
            return True, "it is reachable"
        days = (ssl.cert_time_to_seconds(certificate["notAfter"]) - self._clock.wall_time().timestamp()) / _DAY
        if days < CERTIFICATE_DAYS_MIN:
            return False, f"Its certificate expires in {days:.0f} days. Renew it."
        return True, f"it is reachable; its certificate expires in {days:.0f} days"

    async def _open_socket(self, target: Target) -> socket.socket:
        addresses = await self._guard.resolve_host(target.host)
        return await connect_any_address(addresses, partial(self._connect_address, port=target.port))

    async def _connect_address(self, address: Address, port: int) -> socket.socket:
        connector = self._egress.find_connector(address)
        if connector is None:
            return await connect_socket(open_socket, address, port)
        return await connector.connect(address, port)


def _is_served(webhook: Webhook) -> bool:
    """Whether the newest attempt delivered its callback, so that the settings of the service allow the URL."""
    return webhook.last_delivery_at is not None and webhook.last_error is None


def _judge_refusal(about: str, refusal: str, *, is_served: bool) -> Finding:
    """A URL that the settings of this environment do not allow. Those of the service may: of `serve --dev`, for example."""
    if is_served:
        detail = "not checked: the service delivers there, and the settings of this environment do not allow it"
        return skip(about, f"{detail}. Give this command the settings of the service. {refusal}")
    return fault(
        about, f"{refusal} If the service has other settings than this environment, give them to this command."
    )


def _describe_failure(problem: OSError) -> str:
    """Why a receiver could not be reached, and what to check."""
    match problem:
        case BlockedAddress():
            advice = ADVICE[AttemptCategory.BLOCKED_ADDRESS]
            return f"Its address may not receive callbacks ({problem.special_range}). {advice}"
        case UnresolvedHost():
            return f"Its name cannot be resolved: {problem}. Check DNS."
        case ProxyFailed():
            return f"It cannot be reached: {problem}. Check RINGBACK_CALLBACK_PROXY."
        case ssl.SSLError():
            return f"TLS fails: {problem.reason or problem}. Check its certificate."
        case _:
            return "No server accepts connections there. Is the receiver running, and its port open?"


async def _get_url(url: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=CHECK_TIMEOUT_SECONDS, mounts=bypass_proxy_here(url)) as http:
        return await request_within_limit(http, "GET", url)


def _degraded_endpoints(response: httpx.Response) -> str:
    """The failed endpoints of a ready service, comma-separated; empty if the service is too old to list them."""
    try:
        return ", ".join(str(name) for name in response.json()["degraded"])
    except (ValueError, KeyError, TypeError):
        return ""


def _problem_detail(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status_code}."
