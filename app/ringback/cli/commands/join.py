"""`ringback join`: follows a call that was started earlier, here or elsewhere, and prints its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ringback.cli.client_options import PrintOptions, WaitForInput, WaitSeconds, client_command
from ringback.cli.following import end_of_wait, exit_code_of_wait, repeat_request, show_outcome

if TYPE_CHECKING:
    from ringback.client import Call, RingbackClient

CALL_ID_PREFIX: Final = "call_"


@client_command(exit_code=exit_code_of_wait)
def join(
    call: Annotated[str, typer.Argument(metavar="CALL_ID|TOKEN", help="The call's id, call_…, or a resume token.")],
    *,
    wait_seconds: WaitSeconds = None,
    wait_for_input: WaitForInput = False,
    options: PrintOptions,
) -> None:
    """Wait for a call that was started earlier. Shows its progress and prints its result. Ctrl-C leaves the call running.

    A restart of the service, or of its database, does not end the wait.
    """

    async def run(client: RingbackClient) -> int:
        ends_at = end_of_wait(wait_seconds)
        found, result = await repeat_request(lambda: _find_call(client, call), ends_at=ends_at, has_responded=False)
        return await show_outcome(
            client, found, result, ends_at=ends_at, wait_for_input=wait_for_input, as_json=options.as_json
        )

    if code := options.run(run):
        raise typer.Exit(code)


async def _find_call(client: RingbackClient, name: str) -> tuple[Call, Mapping[str, Any] | None]:
    """The call of an id or a resume token, and its result if that is known already."""
    if name.startswith(CALL_ID_PREFIX):
        return await client.call(name), None
    resumed = await client.resume(name)
    return resumed.call, resumed.result
