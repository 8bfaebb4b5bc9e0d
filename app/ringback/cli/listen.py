"""`ringback listen`: a receiver on this machine that verifies and prints callbacks."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, Final

import typer

from ringback.cli.callback_server import serve_receiver
from ringback.cli.client_options import ApiKey, create_client
from ringback.cli.output import exit_on_errors, exit_with_error, print_message, print_output
from ringback.client import ClientError, RingbackClient
from ringback.receiver import Callback, Gap, ReceiverApp, Terminated
from ringback.signing import secrets

HOST: Final = "127.0.0.1"


@exit_on_errors()
def listen(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 chooses a free one.")],
    secret: Annotated[
        str | None, typer.Option("--secret", metavar="WHSEC", help="The webhook's signing secret, whsec_….")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="RINGBACK_URL",
            help="A service to register with. It must allow callbacks to this machine, as `serve --dev` does.",
        ),
    ] = None,
    api_key: ApiKey = None,
) -> None:
    """Receive callbacks, verify them and print them, until interrupted.

    With --url the command registers a webhook for all your calls, and removes it at the end.
    """
    if secret is None and url is None:
        raise typer.BadParameter("give --secret, or --url of a Ringback to register with")
    asyncio.run(
        _listen(port, _parse_or_generate_secret(secret), client=None if url is None else create_client(url, api_key))
    )


async def _listen(port: int, secret: str, *, client: RingbackClient | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    receiver = ReceiverApp([secret], on_callback=_print_callback, on_notice=_print_notice)
    with _bind_socket(port) as listener:
        address = f"http://{HOST}:{listener.getsockname()[1]}/"
        serving = serve_receiver(receiver, listener, on_refused=_print_refusal)
        async with serving, _registered_webhook(client, address, secret):
            print_message(f"Listening on {address}")
            await stop.wait()


def _parse_or_generate_secret(secret: str | None) -> str:
    """The given secret, or a new one. A registration sends it to the service."""
    if secret is None:
        return secrets.generate_secret(os.urandom(secrets.SECRET_BYTES))
    try:
        secrets.parse_secret(secret)
    except secrets.InvalidSecret as error:
        raise typer.BadParameter(str(error), param_hint="--secret") from None
    return secret


@contextmanager
def _bind_socket(port: int) -> Generator[socket.socket]:
    try:
        listener = socket.create_server((HOST, port))
    except OSError as error:
        exit_with_error(f"Cannot listen on {HOST}:{port}: {error.strerror}. Choose another --port.")
    with listener:
        yield listener


@asynccontextmanager
async def _registered_webhook(client: RingbackClient | None, address: str, secret: str) -> AsyncGenerator[None]:
    """Register a webhook for the duration of the context, if there is a client."""
    if client is None:
        yield
        return
    async with client:
        webhook = await client.register_webhook(address, secret=secret, description="ringback listen")
        print_message(f"{webhook.id}: {webhook.hears}")
        try:
            yield
        finally:
            await _remove_webhook(client, webhook.id)


async def _remove_webhook(client: RingbackClient, webhook_id: str) -> None:
    try:
        await client.delete_webhook(webhook_id)
    except ClientError as error:
        print_message(f"{webhook_id} could not be removed: {error}")


def _print_refusal(body: bytes) -> None:
    """Print why a request was rejected: the usual reason is a wrong secret."""
    print_message(f"Rejected a request: {body.decode()}")


async def _print_callback(callback: Callback) -> None:
    print_output(f"{callback.timestamp:%H:%M:%S} {callback.name} {_describe_callback(callback.data)}")
    for name in ("call_id", "correlation_id", "client_session_id", "resume_token"):
        if value := callback.data.get(name):
            print_output(f"         {name}: {value}")


def _describe_callback(data: Any) -> str:
    """The callback's call: `git/git_log completed (result)`; empty for a test."""
    if "call_id" not in data:
        return ""
    outcome = f" ({data['outcome']})" if data.get("outcome") else ""
    return f"{data.get('upstream')}/{data.get('tool')} {data.get('status')}{outcome}"


async def _print_notice(notice: Gap | Terminated) -> None:
    match notice:
        case Gap():
            print_message(
                "Some callbacks were given up while this receiver was down. Read their events: GET /v1/events"
            )
        case Terminated():
            print_message(f"The subscription has ended: {notice.message}")
