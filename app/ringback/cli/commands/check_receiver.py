"""`ringback check-receiver`: checks a receiver of MCP Events against the specification."""

import asyncio
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import httpx
import typer

from ringback import __version__
from ringback.cli.arguments import require_http_url
from ringback.cli.check_report import CheckResult, describe_url, exit_for_results, print_report
from ringback.cli.output import AsJson, exit_with_error, print_message
from ringback.cli.receiver_checks import find_unaccepted, run_receiver_checks
from ringback.cli.receiver_checks.probe import ANSWER_SECONDS, ReceiverProbe, create_http_client
from ringback.signing.secrets import InvalidSecret, parse_secret


def check_receiver(
    url: Annotated[str, typer.Argument(metavar="URL", help="The callback URL, as a service would call it.")],
    *,
    secret: Annotated[
        str,
        typer.Option(
            "--secret", envvar="RINGBACK_CALLBACK_SECRET", help="A signing secret that the receiver accepts, whsec_…."
        ),
    ],
    subscription: Annotated[
        str | None,
        typer.Option("--subscription", metavar="ID", help="A subscription id that the receiver knows. Default: sub_…."),
    ] = None,
    event: Annotated[
        str, typer.Option("--event", metavar="NAME", help="The name of the events that are sent.")
    ] = "call.finished",
    as_json: AsJson = False,
) -> None:
    """Send a receiver good, bad and hostile callbacks, and judge its answers. Exits with 1 if a MUST is violated.

    Use a receiver of a test: it gets some seventy callbacks, and at the end a notice that the subscription has ended.
    """
    require_http_url(url, option="URL", example="http://127.0.0.1:8000/callbacks")
    _require_secret(secret)
    results = asyncio.run(_run_checks(url, secret, subscription or f"sub_{_new_id()}", event))
    if (answer := find_unaccepted(results)) is not None:
        print_message(
            f"No signed event was accepted ({answer}): check the URL, --secret and --subscription. Nothing else was sent."
        )
    print_report(results, about=describe_url(url), as_json=as_json)
    exit_for_results(results)


async def _run_checks(url: str, secret: str, subscription_id: str, event_name: str) -> Sequence[CheckResult]:
    async with create_http_client(f"ringback-check-receiver/{__version__}", url) as http:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await http.head(url)
        except httpx.ConnectError as error:
            exit_with_error(
                f"No receiver accepts connections at {describe_url(url)}: {error}. Start it, and check the URL and its "
                "certificate."
            )
        except (httpx.HTTPError, TimeoutError):
            pass  # the checks say what is wrong with its answers
        probe = ReceiverProbe(
            http=http,
            url=url,
            secret=secret,
            subscription_id=subscription_id,
            event_name=event_name,
            now=_read_time,
            monotonic=time.monotonic,
            new_id=_new_id,
        )
        return await run_receiver_checks(probe)


def _require_secret(secret: str) -> None:
    try:
        parse_secret(secret)
    except InvalidSecret as error:
        raise typer.BadParameter(str(error), param_hint="--secret") from None


def _read_time() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the command's clock: an edge, like a sender's


def _new_id() -> str:
    return secrets.token_hex(16)
