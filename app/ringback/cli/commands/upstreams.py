"""`ringback upstreams` and `ringback tools`: what can be called, how it is doing, and whether it takes calls."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import typer

from ringback.cli.arguments import ListingGroup
from ringback.cli.client_options import PrintOptions, UpstreamName, client_command
from ringback.cli.commands.upstream_logins import login, logout
from ringback.cli.output import EXIT_NO_RESULT, print_list, print_output

if TYPE_CHECKING:
    from ringback.client import Reloaded, SkippedUpstream, UpstreamIntake, UpstreamRestart

_UPSTREAM_COLUMNS: Final = (
    "name",
    "state",
    "state_since",
    "login",
    "intake",
    "transport",
    "driver",
    "queued_calls",
    "calls_in_flight",
    "calls_waiting",
    "last_error",
    "error_output",
    "advice",
)
_TOOL_COLUMNS: Final = ("name", "title", "description")


app = typer.Typer(
    cls=ListingGroup,
    help="List, pause, drain, resume, restart and reload the MCP servers behind the service, and sign in.",
)
app.command()(login)
app.command()(logout)


@app.callback(invoke_without_command=True)
@client_command()
def upstreams(context: typer.Context, *, options: PrintOptions) -> None:
    """List the MCP servers behind the service, and how each is doing.

    With several nodes, states and calls in flight are those of the node that answers. The column driver
    says how a call that starts now runs. After a restart of Ringback it goes on as a task of the upstream (task, legacy_task)
    or over a stream, if the upstream can resume it (stream). Over one request (plain, mrtr) it ends as unknown.
    """
    if context.invoked_subcommand is not None:
        return
    found = options.run(lambda client: client.upstreams())
    print_list(
        found,
        _UPSTREAM_COLUMNS,
        as_json=options.as_json,
        none="The service has no upstreams. Start it with some: ringback serve --upstream NAME=COMMAND_OR_URL",
        to_row=lambda upstream: {**upstream.model_dump(), "login": upstream.login.state},
    )


@app.command()
@client_command()
def pause(upstream: UpstreamName, *, options: PrintOptions) -> None:
    """Keep an upstream's calls queued, new ones too. Running calls continue. Needs the scope admin."""
    changed = options.run(lambda client: client.pause_upstream(upstream))
    options.print_model(changed, partial(_print_intake, "New calls are queued, and no queued call begins."))


@app.command()
@client_command()
def drain(upstream: UpstreamName, *, options: PrintOptions) -> None:
    """Refuse new calls of an upstream. Queued and running calls continue. Needs the scope admin."""
    changed = options.run(lambda client: client.drain_upstream(upstream))
    options.print_model(changed, partial(_print_intake, "New calls are refused; queued and running ones continue."))


@app.command()
@client_command()
def resume(upstream: UpstreamName, *, options: PrintOptions) -> None:
    """Accept and run an upstream's calls again. Needs the scope admin."""
    changed = options.run(lambda client: client.resume_upstream(upstream))
    options.print_model(changed, partial(_print_intake, "Queued calls begin now."))


def _print_intake(consequence: str, changed: UpstreamIntake) -> None:
    print_output(
        f"{changed.name} is {changed.intake}. {_describe_skip(changed.skipped) if changed.skipped else consequence}"
    )


@app.command()
@client_command()
def restart(upstream: UpstreamName, *, options: PrintOptions) -> None:
    """End the connections to an upstream, with its command, and open them again. Needs the scope admin.

    Calls that wait for its response end as unknown, unless they can be resumed. With several nodes, only the node that answers
    does it.
    """
    restarted = options.run(lambda client: client.restart_upstream(upstream))
    options.print_model(restarted, _print_restarted)


def _print_restarted(restarted: UpstreamRestart) -> None:
    calls = f"{restarted.calls} {'call' if restarted.calls == 1 else 'calls'}"
    print_output(
        f"{restarted.name} is restarted on the node that answered. Running on it: {calls}. "
        "Calls that wait for its response end as unknown, unless they can be resumed. "
        f"See how they ended: ringback calls list --upstream {restarted.name}"
    )


@app.command()
@client_command()
def reload(*, options: PrintOptions) -> None:
    """Make the service read its upstreams' configuration again. Running calls continue. Needs the scope admin.

    An upstream whose new entry is not valid is kept as it was, and the exit code is 1.
    """
    reloaded = options.run(lambda client: client.reload_upstreams())
    options.print_model(reloaded, _print_reloaded)
    if reloaded.kept:
        raise typer.Exit(EXIT_NO_RESULT)


def _print_reloaded(reloaded: Reloaded) -> None:
    names = {
        "Added": reloaded.added,
        "Changed": reloaded.changed,
        "Removed": reloaded.removed,
        "Unchanged": reloaded.unchanged,
    }
    for label, each in names.items():
        if each:
            print_output(f"{label}: {', '.join(each)}.")
    for skipped in reloaded.skipped:
        print_output(f"Skipped: {skipped.name} ({skipped.reason}): {skipped.advice}")
    for kept in reloaded.kept:
        print_output(f"Kept as it was: {kept.name} (its new entry is not valid: {kept.reason}): {kept.advice}")
    for upstream, count in reloaded.queued_calls.items():
        print_output(_describe_queue(upstream, count))
    if reloaded.quotas_changed:
        print_output("Quotas changed.")
    if not (reloaded.skipped or reloaded.kept or any(names.values())):
        print_output("The configuration has no upstreams.")


def _describe_queue(upstream: str, count: int) -> str:
    if count == 1:
        return (
            f"1 call of {upstream} is queued: it waits until its deadline, unless the entry comes back or the call is "
            "cancelled."
        )
    return (
        f"{count} calls of {upstream} are queued: they wait until their deadlines, unless the entry comes back or the calls "
        "are cancelled."
    )


def _describe_skip(skipped: SkippedUpstream) -> str:
    return (
        f"No call of it runs: its entry in the configuration is skipped ({skipped.reason}): {skipped.advice} "
        "Then run: ringback upstreams reload"
    )


@client_command()
def tools(upstream: UpstreamName, *, options: PrintOptions) -> None:
    """List the tools of an upstream. With --json also their schemas."""
    found = options.run(lambda client: client.tools(upstream))
    print_list(
        found,
        _TOOL_COLUMNS,
        as_json=options.as_json,
        none=f"The upstream '{upstream}' lists no tools. See how it is doing: ringback upstreams",
    )
