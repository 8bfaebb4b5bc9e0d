"""The checks of `ringback doctor` on the configured upstreams. Each finding of a fault says how to repair it."""

import asyncio
import logging
import random
import shlex
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from ringback.bootstrap import load_authorities
from ringback.cli.installation_checks.database import Finding, fault, fine, skip
from ringback.client import ClientError, RingbackClient, Upstream
from ringback.domain.clock import Clock
from ringback.domain.errors import SignInRequired, Unavailable
from ringback.domain.upstream_logins import SHARED_OWNER, CredentialsScope
from ringback.domain.upstreams import SkippedUpstream, UpstreamInfo
from ringback.settings import Settings
from ringback.suggestions import find_similar
from ringback.upstreams.config import UpstreamConfig, UpstreamEntry, UpstreamTransport
from ringback.upstreams.own_address import OwnAddress

if TYPE_CHECKING:
    from ringback.upstreams.registry import UpstreamRegistry

UPSTREAM_CHECK: Final = "upstream "
"""How the findings of this machine's own upstreams begin; the name follows."""
TOOLS_SHOWN_MAX: Final = 5
"""Of those whose arguments are not checked; the count says how many there are."""
NAME_LENGTH_MAX: Final = 64
SCHEMAS_READ_MAX: Final = 1_000
"""Of one upstream. A schema that is made to be slow takes 0.2 s."""


async def check_upstreams(entries: Sequence[UpstreamEntry], settings: Settings, *, clock: Clock) -> list[Finding]:
    """Whether each upstream is reachable and lists its tools. Starts stdio upstreams, besides the service's own."""
    own_address = OwnAddress({settings.base_url, settings.process_url})
    entries = [
        each if isinstance(each, SkippedUpstream) else own_address.judge_config(each) or each for each in entries
    ]
    configs = [each for each in entries if isinstance(each, UpstreamConfig)]
    skipped = [
        fault(f"{UPSTREAM_CHECK}{each.configured_name}", f"It is skipped: {each.advice}")
        for each in entries
        if isinstance(each, SkippedUpstream)
    ]
    if not entries:
        return [fault("upstreams", "There is none, so there is no tool to call. Set RINGBACK_CONFIG or --config.")]
    if not configs:
        return skipped
    return [*skipped, *await _check_connections(configs, settings, clock=clock)]


def describe_unknown_upstreams(service_url: str, *, has_api_key: bool) -> Finding:
    """While a service runs and this environment has no configuration. With an API key the service reports its upstreams."""
    reason = f"this environment names no configuration, and {service_url} runs with its own"
    if has_api_key:
        return fine("upstreams", f"{reason}: the service is asked about them with the API key")
    advice = (
        "To check its upstreams, give --config with its file, or --api-key with the scope admin if it asks for keys."
    )
    return skip("upstreams", f"not known: {reason}. {advice}")


def describe_unasked_upstreams(service_url: str) -> Finding:
    """While no Ringback responds at the URL that the user named, and this environment has no configuration."""
    detail = f"not checked: no Ringback responds at {service_url}, and this environment names no configuration"
    return skip("upstreams", detail)


async def _check_connections(configs: Sequence[UpstreamConfig], settings: Settings, *, clock: Clock) -> list[Finding]:
    """Import what connects to upstreams, which takes a second of CPU, only if there is one."""
    from ringback.runner.drivers.selection import predict_driver_name  # noqa: PLC0415 - see above
    from ringback.upstreams.registry import UpstreamRegistry  # noqa: PLC0415 - see above

    upstreams = UpstreamRegistry(
        configs,
        clock=clock,
        random_fraction=random.SystemRandom().random,
        predict_driver_name=predict_driver_name,
        authorities=load_authorities(settings),
    )
    with _without_log_lines():
        async with upstreams:
            ends_at = clock.monotonic() + settings.connect_patience_seconds
            return await asyncio.gather(*(_check_upstream(upstreams, each, ends_at, clock) for each in configs))


@contextmanager
def _without_log_lines() -> Generator[None]:
    """Keep Python from printing warnings of a process that configures no logging: the findings say the same in words."""
    logger, handler = logging.getLogger("ringback"), logging.NullHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


async def _check_upstream(
    upstreams: "UpstreamRegistry", config: UpstreamConfig, ends_at: float, clock: Clock
) -> Finding:
    name, about = config.name, f"{UPSTREAM_CHECK}{config.name}"
    if config.credentials is CredentialsScope.PRINCIPAL:
        return fine(about, "Each principal uses it with a login of its own, so it was not asked for its tools.")
    while True:
        try:
            tools = await upstreams.tool_catalog.list_tools(name, principal=SHARED_OWNER)
        except SignInRequired:
            return fine(about, "It requires a login, which only the service has: ringback upstreams")
        except Unavailable:
            (info,) = (info for info in upstreams.tool_catalog.list_upstreams() if info.name == name)
            if info.state != "failing" and clock.monotonic() < ends_at:
                continue
            return fault(about, _describe_unreachable(info, config))
        checked = [each for each in tools if upstreams.tool_catalog.get_tool_config(name, each.name).checks_arguments]
        detail = f"{len(tools)} tools{describe_unchecked(await _find_schema_problems(checked))}"
        names = [each.name for each in tools]
        unknown = sorted(config.tools_with_settings.difference(names))
        return fault(about, f"{detail}. {_describe_unknown(unknown, names)}") if unknown else fine(about, detail)


def _describe_unknown(unknown: Sequence[str], names: Sequence[str]) -> str:
    """Settings of tools that the upstream does not list. Until it lists them, they have no effect."""
    similar = ((name, find_similar(name, names)) for name in unknown[:TOOLS_SHOWN_MAX])
    shown = [f"'{name[:NAME_LENGTH_MAX]}'" + (f" (did you mean '{each}'?)" if each else "") for name, each in similar]
    more = ", …" if len(unknown) > len(shown) else ""
    return (
        f"'ringback.tools' of its entry names tools that it does not list: {', '.join(shown)}{more}. Correct the names."
    )


def _describe_unreachable(info: UpstreamInfo, config: UpstreamConfig) -> str:
    from ringback.upstreams.connection_problems import ConnectionProblem, get_advice  # noqa: PLC0415 - as `_check_connections`

    problem = info.last_error or "it does not respond"
    advice = info.advice or get_advice(ConnectionProblem.TIMEOUT, config.name)
    return f"It is unreachable: {problem}{describe_output(info.error_output)}. {advice}{_name_command(config)}"


def _name_command(config: UpstreamConfig) -> str:
    """To append to advice about a command. Arguments and variables may be secret, and findings are sent to others."""
    if config.transport is not UpstreamTransport.STDIO:
        return ""
    folder = f", in the folder {config.cwd}" if config.cwd else ""
    return f" The command: {shlex.quote(config.command)} with the 'args' and 'env' of its configuration{folder}."


def describe_output(error_output: str | None) -> str:
    """What follows the name of a problem: how the command ended, and what it wrote last."""
    return f" ({error_output.rstrip('.')})" if error_output else ""


async def check_listed_tools(client: RingbackClient, upstreams: Iterable[Upstream]) -> list[Finding]:
    """The tools that a running service lists, one finding for each of these upstreams whose list it has."""
    findings: list[Finding] = []
    for upstream in upstreams:
        with suppress(ClientError):  # the status of the upstream says why
            tools = await client.tools(upstream.name)
            checked = tools if upstream.checks_arguments else ()
            unchecked = describe_unchecked(await _find_schema_problems(checked))
            findings.append(fine(f"service tools of {upstream.name}", f"{len(tools)} tools{unchecked}"))
    return findings


class _ListedTool(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def input_schema(self) -> Mapping[str, Any]: ...


async def _find_schema_problems(tools: Sequence[_ListedTool]) -> dict[str, str]:
    """Why arguments of a tool are not checked, by its name."""
    from ringback.upstreams.json_schema.schema import find_schema_problem  # noqa: PLC0415 - as `_check_connections`

    found: dict[str, str] = {}
    for tool in tools[:SCHEMAS_READ_MAX]:
        if (problem := find_schema_problem(tool.input_schema)) is not None:
            found[tool.name] = problem
        await asyncio.sleep(0)  # the other upstreams connect meanwhile
    return found


def describe_unchecked(problems: Mapping[str, str]) -> str:
    """To append to the number of tools; empty if the arguments of all are checked."""
    if not problems:
        return ""
    shown = [f"'{name[:NAME_LENGTH_MAX]}' ({reason})" for name, reason in list(problems.items())[:TOOLS_SHOWN_MAX]]
    more = ", …" if len(problems) > len(shown) else ""
    count = "1 tool" if len(problems) == 1 else f"{len(problems)} tools"
    return f". Arguments of {count} are not checked, because the inputSchema is unusable: {', '.join(shown)}{more}"
