"""`ringback doctor`: checks the installation, and says how to repair each fault."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated

import typer

from ringback.bootstrap import load_authorities, require_callback_url, require_complete_roles
from ringback.bootstrap.configuration import build_target_policy
from ringback.bootstrap.egress import open_egress
from ringback.cli.client_options import ApiKey, create_client
from ringback.cli.configured_upstreams import ConfigFile, UpstreamOption, load_configured_upstreams
from ringback.cli.installation_checks import network
from ringback.cli.installation_checks.database import API_KEYS_CHECK, Finding, check_database
from ringback.cli.installation_checks.network import CallbackCheck
from ringback.cli.installation_checks.own_service import find_own_installation
from ringback.cli.installation_checks.public_url import check_public_paths, check_public_url
from ringback.cli.installation_checks.service import check_running_service, check_same_database, is_elsewhere
from ringback.cli.installation_checks.upstreams import UPSTREAM_CHECK, check_upstreams, describe_unknown_upstreams
from ringback.cli.output import EXIT_NO_RESULT, AsJson, exit_on_errors, print_json, print_output
from ringback.cli.server_options import Database
from ringback.client.arguments import check_base_url
from ringback.client.problems import InvalidArgument
from ringback.domain.clock import Clock, SystemClock
from ringback.domain.errors import StoreUnavailable
from ringback.notifier.http.dialer import make_tls_context
from ringback.notifier.http.guard import TargetGuard
from ringback.service_database import accept_lost_keys, accept_restore
from ringback.settings import Settings, SettingsError, find_misspelt_variables, load_settings
from ringback.upstreams.config import ConfigError, UpstreamEntry

ReadEntries = Callable[[], Sequence[UpstreamEntry]]
"""Reads the configured upstreams. Raises `ConfigError`."""


@exit_on_errors()
def doctor(
    *,
    config: ConfigFile = None,
    upstream: UpstreamOption = None,
    database: Database = None,
    url: Annotated[
        str | None,
        typer.Option("--url", envvar="RINGBACK_URL", help="The URL of the service. Default: from the settings."),
    ] = None,
    callbacks: Annotated[
        bool, typer.Option("--callbacks", help="Also connect to the receivers of your webhooks. Needs --api-key.")
    ] = False,
    restored: Annotated[
        bool,
        typer.Option("--accept-restore", help="Accept a database whose last commits are missing."),
    ] = False,
    lost_keys: Annotated[
        bool,
        typer.Option("--accept-lost-keys", help="Let the service start without the missing keys."),
    ] = False,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Check the settings, the database, the keys, the upstreams and the service. Exits with 1 if a check fails."""
    _require_url(url)
    try:
        settings = load_settings(database_url=database, config=config)
        own = None if url or api_key or upstream else find_own_installation(settings)
        settings = settings if own is None else own.settings
        load_authorities(settings)
    except SettingsError as problem:
        findings = [Finding("settings", False, str(problem))]
    else:
        findings = asyncio.run(_accept_losses(settings, restored=restored, lost_keys=lost_keys))
        if own is None:
            read_entries = partial(load_configured_upstreams, settings, upstream or [], dev=False)
        else:
            api_key, read_entries = own.api_key, own.read_entries
            findings += own.describe()
        here = asyncio.run(_check_installation_here(settings, read_entries, url, has_api_key=bool(api_key)))
        findings += here
        if own is None or own.is_running:
            lists_tools = not any(each.about.startswith(UPSTREAM_CHECK) for each in here)
            if any(each.about == API_KEYS_CHECK for each in here):  # the database could be opened
                findings += asyncio.run(check_same_database(_choose_url(settings, url), api_key, settings))
            findings += asyncio.run(
                _check_service(settings, url, api_key, callbacks=callbacks, lists_tools=lists_tools)
            )
    _print_findings(findings, as_json=as_json)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(EXIT_NO_RESULT)


def _require_url(url: str | None) -> None:
    try:
        if url:
            check_base_url(url)
    except InvalidArgument as problem:
        raise typer.BadParameter(str(problem), param_hint="--url") from None


async def _accept_losses(settings: Settings, *, restored: bool, lost_keys: bool) -> list[Finding]:
    """Record what the operator accepts, before the checks."""
    findings: list[Finding] = []
    try:
        if restored:
            await accept_restore(settings)
            findings.append(Finding("restore", True, "accepted: the missing commits are not reported again"))
        if lost_keys:
            names = ", ".join(await accept_lost_keys(settings)) or "none is missing"
            findings.append(Finding("lost keys", True, f"accepted: {names}"))
    except (StoreUnavailable, SettingsError) as problem:
        findings.append(Finding("acceptance", False, str(problem)))
    return findings


async def _check_installation_here(
    settings: Settings, read_entries: ReadEntries, url: str | None, *, has_api_key: bool
) -> list[Finding]:
    """The checks on this machine; none if the service is on another one."""
    service_url = _choose_url(settings, url)
    if is_elsewhere(service_url, settings):
        return []
    return await _check_installation(settings, read_entries, service_url, has_api_key=has_api_key, clock=SystemClock())


def _choose_url(settings: Settings, url: str | None) -> str:
    return (url or settings.base_url).rstrip("/")


async def _check_service(
    settings: Settings, url: str | None, api_key: str | None, *, callbacks: bool, lists_tools: bool
) -> list[Finding]:
    clock = SystemClock()
    service_url = _choose_url(settings, url)
    findings = await network.check_service(service_url, clock=clock)
    findings += await check_running_service(service_url, api_key, lists_tools=lists_tools, clock=clock)
    if not is_elsewhere(service_url, settings):
        process_url = settings.process_url if service_url == settings.base_url else service_url
        findings.append(await check_public_url(settings, process_url))
        findings += await check_public_paths(settings)
    if callbacks:
        findings += await _check_callbacks(settings, service_url, api_key, clock=clock)
    return findings


async def _check_callbacks(settings: Settings, service_url: str, api_key: str | None, *, clock: Clock) -> list[Finding]:
    """Connect as the service does: through the egress proxy, and with its client certificates."""
    make_context = partial(make_tls_context, load_authorities(settings))
    try:
        async with (
            open_egress(settings, make_context=make_context) as egress,
            create_client(service_url, api_key) as client,
            aclosing(TargetGuard(build_target_policy(settings))) as guard,
        ):
            return await CallbackCheck(guard, clock=clock, tls=make_context(), egress=egress).run_checks(client)
    except SettingsError as problem:
        return [Finding("callbacks", False, str(problem))]


def _check_names() -> list[Finding]:
    misspelt = [
        Finding("settings", False, f"{name} is no setting and is ignored. Did you mean {setting}?")
        for name, setting in find_misspelt_variables().items()
    ]
    return misspelt or [Finding("settings", True, "they are valid")]


async def _check_installation(
    settings: Settings, read_entries: ReadEntries, service_url: str, *, has_api_key: bool, clock: Clock
) -> list[Finding]:
    """The settings of this environment, and what they name. A service that runs here may have more from its command line."""
    database = await check_database(settings, is_open=partial(network.is_open, service_url))
    findings = [*_check_names(), *_check_roles(settings), *database]
    try:
        upstreams = read_entries()
    except (ConfigError, OSError) as problem:
        findings.append(Finding("upstreams", False, str(problem)))
    else:
        if not upstreams and await network.is_running(service_url):
            findings.append(describe_unknown_upstreams(service_url, has_api_key=has_api_key))
        else:
            findings += await check_upstreams(upstreams, settings, clock=clock)
    return [*findings, *await network.check_issuer(settings)]


def _check_roles(settings: Settings) -> list[Finding]:
    try:
        require_complete_roles(settings)
        require_callback_url(settings)
    except SettingsError as problem:
        return [Finding("roles", False, str(problem))]
    return []


def _print_findings(findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        print_json([{"about": finding.about, "ok": finding.ok, "detail": finding.detail} for finding in findings])
        return
    width = max(len(finding.about) for finding in findings)
    for finding in findings:
        print_output(f"{'ok   ' if finding.ok else 'WRONG'}  {finding.about:<{width}}  {finding.detail}")
