"""`ringback check-server`: checks an MCP server that offers Events against the specification."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import typer

from ringback.cli.arguments import parse_headers, parse_object, require_http_url
from ringback.cli.check_report import CheckResult, CheckVerdict, describe_url, exit_for_results, print_report
from ringback.cli.output import EXIT_INTERRUPTED, AsJson, exit_on_errors, exit_with_error, print_json, print_table
from ringback.cli.server_checks.cases import ImpossibleRun, ServerCase
from ringback.cli.server_checks.connection import Era
from ringback.cli.server_checks.run import RunOptions, run_checks, select_cases
from ringback.cli.server_checks.subject import EventChoice

EXIT_TERMINATED: Final = 128 + signal.SIGTERM
"""Exit code: SIGTERM, as shells report it."""


@exit_on_errors(ImpossibleRun)
def check_server(
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="The URL of the MCP server, such as https://example.com/mcp.")
    ] = None,
    *,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME: VALUE", help="A header of every request. May be repeated."),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", envvar="RINGBACK_CHECK_API_KEY", help="Sent as `Authorization: Bearer …`."),
    ] = None,
    other_header: Annotated[
        list[str] | None,
        typer.Option("--other-header", metavar="NAME: VALUE", help="Headers of another principal, to check isolation."),
    ] = None,
    era: Annotated[
        Era | None, typer.Option("--era", help="Default: modern (2026-07-28) if the server speaks it, else legacy.")
    ] = None,
    event: Annotated[
        str | None, typer.Option("--event", help="The event type to check. Default: the first that offers each mode.")
    ] = None,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="The arguments of --event.")
    ] = None,
    emit: Annotated[
        str | None, typer.Option("--emit", metavar="COMMAND", help="A shell command that makes one such event happen.")
    ] = None,
    emit_tool: Annotated[
        str | None, typer.Option("--emit-tool", metavar="NAME", help="A tool whose call makes one such event happen.")
    ] = None,
    emit_arguments: Annotated[
        str, typer.Option("--emit-arguments", metavar="JSON", help="The arguments of --emit-tool.")
    ] = "{}",
    callback_port: Annotated[
        int, typer.Option("--callback-port", min=0, max=65535, help="Listen here for callbacks; 0 chooses a free port.")
    ] = 0,
    callback_url: Annotated[
        str | None,
        typer.Option(
            "--callback-url",
            metavar="URL",
            help="A public https URL that reaches --callback-port, such as a tunnel's. Without it, callbacks go to "
            "http://127.0.0.1, which the server must allow.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CHECK", help="A check or a chapter. May be repeated.")
    ] = None,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks, and run none.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check an MCP server that offers Events against the specification. Exits with 1 if it breaks a MUST.

    An event must happen for about half of the checks: name a tool whose call makes one happen, or a command. The
    subscriptions of a run are ended afterwards. A run takes about a minute, because it waits for a heartbeat and for a
    retried delivery.
    """
    try:
        cases = select_cases(only or [])
    except ValueError as problem:
        raise typer.BadParameter(f"{problem}; --list shows them", param_hint="--only") from None
    if list_checks:
        columns = ("chapter", "level", "check", "expectation")
        rows: list[dict[str, Any]] = [
            dict(zip(columns, (each.chapter, each.case.level, each.case.id, each.case.expectation), strict=True))
            for each in cases
        ]
        if as_json:
            print_json(rows)
        else:
            print_table(columns, rows)
        return
    if url is None:
        exit_with_error("give the URL of the MCP server: ringback check-server https://example.com/mcp")
    require_http_url(url, option="URL", example="https://example.com/mcp")
    options = RunOptions(
        url=url,
        credentials=_make_credentials(header or [], api_key),
        other_credentials=_make_credentials(other_header, None) if other_header else None,
        era=era,
        callback_port=callback_port,
        callback_url=callback_url,
        choice=EventChoice(name=event, arguments=parse_object(arguments, option="--arguments") if arguments else None),
        emit_command=emit,
        emit_tool=emit_tool,
        emit_arguments=parse_object(emit_arguments, option="--emit-arguments"),
    )
    try:
        results = asyncio.run(_run_until_signal(options, cases))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except asyncio.CancelledError:
        raise typer.Exit(EXIT_TERMINATED) from None
    print_report(results, about=describe_url(url), as_json=as_json)
    if all(each.verdict is CheckVerdict.UNTESTABLE for each in results):
        exit_with_error("nothing was checked: each check says in `observed` what it needs.")
    exit_for_results(results)


async def _run_until_signal(options: RunOptions, cases: Sequence[ServerCase]) -> list[CheckResult]:
    """SIGTERM ends a run as Ctrl-C does: what it has left at the server is ended first."""
    running = asyncio.current_task()
    assert running is not None  # noqa: S101 - the code runs in a task
    with suppress(NotImplementedError, RuntimeError):  # Windows, or not the main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    return await run_checks(options, cases)


def _make_credentials(lines: list[str], api_key: str | None) -> dict[str, str]:
    authorization = {"authorization": f"Bearer {api_key}"} if api_key else {}
    return authorization | {name.lower(): value for name, value in parse_headers(lines).items()}
