"""`ringback wait`: waits for any or all of several calls."""

from typing import Annotated

import typer

from ringback.cli.client_options import URL_DEFAULT, ApiKey, Url, run_with_client
from ringback.cli.following import describe_outcome
from ringback.cli.output import (
    EXIT_NO_RESULT,
    TRY_AGAIN,
    AsJson,
    exit_on_errors,
    print_message,
    print_models,
    print_output,
)
from ringback.client import Call


@exit_on_errors()
def wait(
    call_ids: Annotated[list[str], typer.Argument(metavar="CALL_ID...", help="The ids of the calls, at most 100.")],
    *,
    wait_for_any: Annotated[
        bool, typer.Option("--any/--all", help="End with the first call, or with the last.")
    ] = False,
    wait_seconds: Annotated[
        float | None,
        typer.Option("--wait-seconds", min=0, help="Stop waiting after this time, with exit code 75. Default: never."),
    ] = None,
    as_json: AsJson = False,
    url: Url = URL_DEFAULT,
    api_key: ApiKey = None,
) -> None:
    """Wait until calls have ended. Exits with 1 if one of the ended calls has no result."""
    calls = run_with_client(
        url,
        api_key,
        lambda client: (client.wait_any if wait_for_any else client.wait_all)(call_ids, timeout_seconds=wait_seconds),
    )
    if as_json:
        print_models(calls)
    else:
        for call in calls:
            print_output(f"{call.id} {call.status} ({call.outcome})" if call.final else f"{call.id} {call.status}")
    ended = [call for call in calls if call.final]
    if not (ended if wait_for_any else len(ended) == len(calls)):
        print_message(
            f"{len(calls) - len(ended)} of {len(calls)} calls continue. Wait again, or: ringback join CALL_ID"
        )
        raise typer.Exit(TRY_AGAIN)
    _exit_with_outcome(ended)


def _exit_with_outcome(ended: list[Call]) -> None:
    failed = [call for call in ended if call.outcome != "result"]
    for call in failed:
        print_message(describe_outcome(call))
    if failed:
        raise typer.Exit(EXIT_NO_RESULT)
