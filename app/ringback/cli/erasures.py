"""`ringback calls erase`, `ringback sessions erase`, `ringback principals erase`, and `ringback erasure`: how far one is."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from ringback.cli.client_options import (
    URL_DEFAULT,
    ApiKey,
    ForAllPrincipals,
    ForPrincipal,
    Url,
    choose_principal,
    run_with_client,
)
from ringback.cli.output import (
    AsJson,
    exit_on_errors,
    exit_with_error,
    model_to_json,
    print_json,
    print_message,
    print_output,
)
from ringback.client import Erasure, RingbackClient

sessions = typer.Typer(no_args_is_help=True, help="Erase the calls of a client session.")
principals = typer.Typer(no_args_is_help=True, help="Erase all data of a principal.")

Cancel = Annotated[bool, typer.Option("--cancel", help="Cancel calls that have not ended, and erase them then.")]
Confirmed = Annotated[bool, typer.Option("--yes", help="Confirm: what is erased cannot be restored.")]


@exit_on_errors()
def erase_call(
    call_id: Annotated[str, typer.Argument(metavar="CALL_ID", help="The call's id, call_….")],
    *,
    cancel: Cancel = False,
    principal: ForPrincipal = None,
    all_principals: ForAllPrincipals = False,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Erase a call that has ended, with its result, its callbacks and the contents of its events."""
    owner = choose_principal(principal, all_principals)
    _erase(url, api_key, lambda client: client.erase_call(call_id, cancel=cancel), principal=owner, as_json=as_json)


@sessions.callback()
def sessions_group() -> None:
    """Erase the calls of a client session."""


@sessions.command("erase")
@exit_on_errors()
def erase_session(
    client_session_id: Annotated[str, typer.Argument(metavar="SESSION", help="The client_session_id.")],
    *,
    cancel: Cancel = False,
    principal: ForPrincipal = None,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Erase your calls with this client_session_id, and the webhooks that are registered for it."""
    _erase(
        url,
        api_key,
        lambda client: client.erase_session(client_session_id, cancel=cancel),
        principal=principal,
        as_json=as_json,
    )


@principals.callback()
def principals_group() -> None:
    """Erase all data of a principal."""


@principals.command("erase")
@exit_on_errors()
def erase_principal(
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", help="The owner of the data.")],
    confirmed: Confirmed = False,
    cancel: Cancel = False,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Erase everything of a principal, its API keys too. Needs the scope admin."""
    if not confirmed:
        exit_with_error(
            f"This erases all calls, results, events, webhooks and API keys of '{principal}'. Confirm it with --yes.",
            exit_code=2,
        )
    _erase(url, api_key, lambda client: client.erase_principal(principal, cancel=cancel), as_json=as_json)


@exit_on_errors()
def erasure(
    erasure_id: Annotated[str, typer.Argument(metavar="ERASURE", help="The erasure's id, era_….")],
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Show how far an erasure is."""
    _erase(url, api_key, lambda client: client.erasure(erasure_id), as_json=as_json)


def _erase(
    url: str,
    api_key: str | None,
    request: Callable[[RingbackClient], Awaitable[Erasure]],
    *,
    principal: str | None = None,
    as_json: bool,
) -> None:
    shown = run_with_client(url, api_key, request, principal=principal)
    if as_json:
        print_json(model_to_json(shown))
        return
    print_output(f"state: {shown.state}")
    print_output(
        f"erased: {shown.calls} calls, {shown.deliveries} deliveries, {shown.events} events, {shown.webhooks} webhooks"
    )
    if shown.state == "waiting":
        print_message(f"A cancelled call has not ended yet. See how far it is: ringback erasure {shown.id}")
    elif shown.state != "finished":
        print_message(f"It continues by itself. See how far it is: ringback erasure {shown.id}")
