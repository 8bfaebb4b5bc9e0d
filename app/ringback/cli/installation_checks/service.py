"""The checks of `ringback doctor` on a running service: what it says about itself."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from ringback import __version__
from ringback.cli.client_options import collect_first, create_client
from ringback.cli.installation_checks.database import (
    CLOCK_SKEW_SECONDS_MAX,
    Finding,
    describe_overdue,
    fault,
    fine,
    skip,
)
from ringback.cli.installation_checks.upstreams import check_listed_tools, describe_output
from ringback.client import ClientError, Forbidden, Problem, ServiceStatus, Unauthenticated, Upstream, Webhook
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.errors import Unauthenticated as RingbackUnauthenticated
from ringback.domain.principal import ALL_PRINCIPALS
from ringback.domain.validation import is_loopback
from ringback.service_database import open_api_keys
from ringback.settings import Settings, SettingsError
from ringback.signing.secrets import is_well_formed_api_key

_NOT_ASKED: Final = (
    "not asked: give a key with the scope admin (--api-key). Without it this command does not check the service's workers, "
    "keys, upstreams, overdue deliveries and failing webhooks."
)
_UNRESPONSIVE: Final = "unresponsive"
"""The state of an upstream that is connected, and silent while calls of it have time."""
_NOT_ALLOWED: Final = (
    "not asked: the key lacks the scope admin. Without it this command does not check the service's workers, keys, overdue "
    "deliveries and failing webhooks."
)
FAILING_WEBHOOKS_SHOWN_MAX: Final = 10
"""An operator mends a few at a time; the count says how many there are."""


def is_elsewhere(service_url: str, settings: Settings) -> bool:
    """Whether the service runs on another machine, so that this environment's settings are not its settings."""
    host = urlsplit(service_url).hostname or ""
    own_hosts = {settings.host, urlsplit(settings.base_url).hostname}
    return not is_loopback(host) and host not in own_hosts


# -- what the service says -------------------------------------------------------------------------------------------------


async def check_running_service(url: str, api_key: str | None, *, lists_tools: bool, clock: Clock) -> list[Finding]:
    """The service's own checks, for a key with the scope `admin`. `lists_tools`: this machine cannot list them itself.

    A service without authentication answers without a key.
    """
    try:
        async with (
            create_client(url, api_key) as client,
            create_client(url, api_key, ALL_PRINCIPALS) as operator_client,
        ):
            status = await client.status()
            described = describe_status(status, clock=clock)  # at once: it compares the clocks
            webhooks = await collect_first(operator_client.webhooks(health="failing"), limit=FAILING_WEBHOOKS_SHOWN_MAX)
            tools = await check_listed_tools(client, status.upstreams if lists_tools else [])
    except Forbidden:
        return await _check_readable(url, api_key)
    except ClientError as problem:
        is_refusal = isinstance(problem, Problem) and not isinstance(problem, Unauthenticated)
        if not api_key and not is_refusal:  # it asks for a key, or is away, which the check `service` says
            return [skip("service status", _NOT_ASKED)]
        return [fault("service status", str(problem))]
    return [*described, *tools, *describe_failing_webhooks(webhooks, status.failing_webhooks)]


async def _check_readable(url: str, api_key: str | None) -> list[Finding]:
    """What a key without the scope `admin` may read: the state of its upstreams."""
    skipped = skip("service status", _NOT_ALLOWED)
    try:
        async with create_client(url, api_key) as client:
            return [*_check_upstreams(await client.upstreams()), skipped]
    except Forbidden:
        return [skipped]
    except ClientError as problem:
        return [fault("service status", str(problem))]


async def check_same_database(url: str, api_key: str | None, settings: Settings) -> list[Finding]:
    """A fault if the service accepts an API key that the database of this environment does not have; else nothing.

    Call it only for a database that can be opened. A service without authentication accepts any key.
    """
    if settings.auth == "off" or not api_key or not is_well_formed_api_key(api_key) or not await _accepts(url, api_key):
        return []
    try:
        async with open_api_keys(settings) as keys:
            await keys.authenticate_key(api_key)
    except RingbackUnauthenticated:
        detail = (
            f"{url} accepts an API key that the database of this environment does not have, so they are two services: the "
            "checks of the database and of the key ring say nothing about the one that runs. Name one service by "
            "RINGBACK_DATABASE_URL (--database) and RINGBACK_URL (--url)."
        )
        return [fault("one service", detail)]
    except (StoreUnavailable, SettingsError):
        return []
    return []


async def _accepts(url: str, api_key: str) -> bool:
    """Whether the service knows the key, and asks for one."""
    with suppress(ClientError):
        async with create_client(url, None) as anonymous:
            await anonymous.status()
            return False
    try:
        async with create_client(url, api_key) as client:
            await client.status()
    except Forbidden:
        return True
    except ClientError:
        return False
    return True


def describe_status(status: ServiceStatus, *, clock: Clock) -> list[Finding]:
    """What the service says about itself; what works is one line for each kind of check."""
    return [
        _check_version(status),
        _check_service_clock(status, clock),
        Finding("service database", status.problem is None, status.problem or "it stores work"),
        _check_names("service workers", status.failing_workers, "failed and are being restarted; its log says why"),
        _check_names("service endpoints", status.failing_endpoints, "failed and are being restarted; its log says why"),
        _check_service_keys(status),
        _check_queue(status),
        *_check_upstreams(status.upstreams),
    ]


def describe_failing_webhooks(webhooks: Sequence[Webhook], count: int) -> list[Finding]:
    """One finding for each of these failing webhooks, and one with the number of all."""
    if not webhooks:
        return [fine("webhooks", "none is failing")]
    found = [fault("webhooks", _count_failing_webhooks(max(count, len(webhooks)), shown=len(webhooks)))]
    for webhook in webhooks:
        owner = f" of {webhook.principal}" if webhook.principal else ""
        since = f" since {webhook.failing_since:%Y-%m-%d %H:%M} UTC" if webhook.failing_since else ""
        detail = f" ({webhook.last_error_detail})" if webhook.last_error_detail else ""
        advice = f" {webhook.last_error_advice}" if webhook.last_error_advice else ""
        found.append(fault(f"webhook {webhook.id}{owner}", f"{webhook.last_error}{detail}{since}.{advice}"))
    return found


def _count_failing_webhooks(count: int, *, shown: int) -> str:
    failing = f"{count} {'is' if count == 1 else 'are'} failing"
    if count == shown:
        return failing
    some = f"{shown} of them {'is' if shown == 1 else 'are'} shown"
    return f"{failing}; {some}. See all: ringback webhooks list --failing --all-principals"


def _check_version(status: ServiceStatus) -> Finding:
    if status.version == __version__:
        return fine("service version", f"it runs {status.version}, as this command")
    return fault(
        "service version",
        f"it runs {status.version}, and this command is {__version__}. Restart the service with the installed version.",
    )


def _check_service_clock(status: ServiceStatus, clock: Clock) -> Finding:
    skew = (status.time - clock.wall_time()).total_seconds()
    ok = abs(skew) <= CLOCK_SKEW_SECONDS_MAX
    said = f"it is {skew:+.1f} s from this machine's"
    return Finding(
        "service clock", ok, said if ok else f"{said}. Synchronise both by NTP: signatures contain the time."
    )


def _check_names(about: str, failing: Sequence[str], what: str) -> Finding:
    return Finding(about, not failing, f"{', '.join(failing)} {what}" if failing else "all run")


def _check_service_keys(status: ServiceStatus) -> Finding:
    if status.lacks_keys:
        return fault("service keys", "it lacks a key of other nodes. All nodes need the same RINGBACK_SECRET_KEYS.")
    return fine("service keys", "it has every sealing key")


def _check_queue(status: ServiceStatus) -> Finding:
    return describe_overdue("service deliveries", status.oldest_due_delivery_age_seconds)


def _say_since(upstream: Upstream) -> str:
    return f" since {upstream.state_since:%Y-%m-%d %H:%M} UTC" if upstream.state_since else ""


def _check_upstreams(upstreams: Sequence[Upstream]) -> list[Finding]:
    """An upstream that does not respond may be busy with a tool (`domain.liveness`), so it is named, and is no fault."""
    shown = [each for each in upstreams if each.last_error is not None]
    failing = [each for each in shown if each.state != _UNRESPONSIVE]
    found = [
        Finding(
            f"service upstream {each.name}",
            each.state == _UNRESPONSIVE,
            f"{each.last_error}{_say_since(each)}{describe_output(each.error_output)}. {each.advice or ''}".rstrip(),
        )
        for each in shown
    ]
    closed = [
        fault(f"service upstream {each.name}", f"it is {each.intake}. Resume it: ringback upstreams resume {each.name}")
        for each in upstreams
        if each.intake != "open"
    ]
    working = len(upstreams) - len(failing)
    summary = fine("service upstreams", f"{working} of {len(upstreams)} have no error")
    return [summary, *found, *closed]
