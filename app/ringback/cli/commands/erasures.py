"""`ringback calls erase`, `ringback sessions erase`, `ringback principals erase`, and `ringback erasure`: how far one is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ringback.cli.client_options import CallId, OperatorOptions, PrincipalOptions, PrintOptions, client_command
from ringback.cli.output import exit_with_error, print_message, print_output

if TYPE_CHECKING:
    from ringback.client import Erasure

sessions = typer.Typer(no_args_is_help=True, help="Erase the calls of a client session.")
principals = typer.Typer(no_args_is_help=True, help="Erase all data of a principal.")

Cancel = Annotated[bool, typer.Option("--cancel", help="Cancel calls that have not ended, and erase them then.")]
Confirmed = Annotated[bool, typer.Option("--yes", help="Confirm: what is erased cannot be restored.")]


@client_command()
def erase_call(call_id: CallId, *, cancel: Cancel = False, options: OperatorOptions) -> None:
    """Erase a call that has ended, with its result, its callbacks and the contents of its events."""
    options.print_model(options.run(lambda client: client.erase_call(call_id, cancel=cancel)), _print_erasure)


@sessions.callback()
def sessions_group() -> None:
    """Erase the calls of a client session."""


@sessions.command("erase")
@client_command()
def erase_session(
    client_session_id: Annotated[str, typer.Argument(metavar="SESSION", help="The client_session_id.")],
    *,
    cancel: Cancel = False,
    options: PrincipalOptions,
) -> None:
    """Erase your calls with this client_session_id, and the webhooks that are registered for it."""
    erasure = options.run(lambda client: client.erase_session(client_session_id, cancel=cancel))
    options.print_model(erasure, _print_named_erasure)


@principals.callback()
def principals_group() -> None:
    """Erase all data of a principal."""


@principals.command("erase")
@client_command()
def erase_principal(
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", help="The owner of the data.")],
    *,
    confirmed: Confirmed = False,
    cancel: Cancel = False,
    options: PrintOptions,
) -> None:
    """Erase everything of a principal, its API keys too. Needs the scope admin."""
    if not confirmed:
        exit_with_error(
            f"This erases all calls, results, events, webhooks and API keys of '{principal}'. Confirm it with --yes.",
            exit_code=2,
        )
    options.print_model(
        options.run(lambda client: client.erase_principal(principal, cancel=cancel)), _print_named_erasure
    )


@client_command()
def erasure(
    erasure_id: Annotated[str, typer.Argument(metavar="ERASURE", help="The erasure's id, era_….")],
    *,
    options: PrintOptions,
) -> None:
    """Show how far an erasure is."""
    options.print_model(options.run(lambda client: client.erasure(erasure_id)), _print_erasure)


def _print_named_erasure(shown: Erasure) -> None:
    """A misspelled name finds nothing, and its erasure finishes as any other."""
    _print_erasure(shown)
    if shown.state == "finished" and not (shown.calls or shown.deliveries or shown.events or shown.webhooks):
        print_message(
            f"No calls, events or webhooks of '{shown.target}' were found. If you expected some, check the spelling."
        )


def _print_erasure(shown: Erasure) -> None:
    print_output(f"state: {shown.state}")
    print_output(
        f"erased: {shown.calls} calls, {shown.deliveries} deliveries, {shown.events} events, {shown.webhooks} webhooks"
    )
    if shown.state == "waiting":
        print_message(f"A cancelled call has not ended yet. See how far it is: ringback erasure {shown.id}")
    elif shown.state != "finished":
        print_message(f"It continues by itself. See how far it is: ringback erasure {shown.id}")
