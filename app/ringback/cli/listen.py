"""`ringback listen`: a receiver on this machine that verifies callbacks and prints them."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, Final

import typer

from ringback.cli.callback_server import serve_receiver
from ringback.cli.connect import ApiKey, client_of
from ringback.cli.output import fail, reported, show, tell
from ringback.client import ClientError, RingbackClient
from ringback.receiver import Callback, Gap, ReceiverApp, Terminated
from ringback.signing import secrets

HOST: Final = "127.0.0.1"


@reported()
def listen(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")],
    secret: Annotated[
        str | None, typer.Option("--secret", metavar="WHSEC", help="The signing secret, whsec_…, of the webhook.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="RINGBACK_URL",
            help="A Ringback to register with. It must allow callbacks to this machine, as `serve --dev` does.",
        ),
    ] = None,
    api_key: ApiKey = None,
) -> None:
    """Receive callbacks, verify them and print them, until interrupted.

    With --url it registers a webhook for all your calls, and removes it at the end.
    """
    if secret is None and url is None:
        raise typer.BadParameter("give --secret, or --url of a Ringback to register with")
    asyncio.run(_listen(port, _checked(secret), client=None if url is None else client_of(url, api_key)))


async def _listen(port: int, secret: str, *, client: RingbackClient | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    receiver = ReceiverApp([secret], on_callback=_show_callback, on_notice=_show_notice)
    with _bound(port) as listener:
        address = f"http://{HOST}:{listener.getsockname()[1]}/"
        serving = serve_receiver(receiver, listener, on_refused=_show_refusal)
        async with serving, _registered(client, address, secret):
            tell(f"Listening on {address}")
            await stop.wait()


def _checked(secret: str | None) -> str:
    """The secret that was given, or a new one; whoever registers tells it to the service."""
    if secret is None:
        return secrets.generate(os.urandom(secrets.SECRET_BYTES))
    try:
        secrets.parse(secret)
    except secrets.InvalidSecret as error:
        raise typer.BadParameter(str(error), param_hint="--secret") from None
    return secret


@contextmanager
def _bound(port: int) -> Generator[socket.socket]:
    try:
        listener = socket.create_server((HOST, port))
    except OSError as error:
        fail(f"Cannot listen on {HOST}:{port}: {error.strerror}. Choose another --port.")
    with listener:
        yield listener


@asynccontextmanager
async def _registered(client: RingbackClient | None, address: str, secret: str) -> AsyncGenerator[None]:
    """With a client, a webhook for as long as this lasts."""
    if client is None:
        yield
        return
    async with client:
        webhook = await client.register_webhook(address, secret=secret, description="ringback listen")
        tell(f"{webhook.id}: {webhook.hears}")
        try:
            yield
        finally:
            await _remove(client, webhook.id)


async def _remove(client: RingbackClient, webhook_id: str) -> None:
    try:
        await client.delete_webhook(webhook_id)
    except ClientError as error:
        tell(f"{webhook_id} could not be removed: {error}")


def _show_refusal(body: bytes) -> None:
    """A wrong secret would be hard to find otherwise."""
    tell(f"Refused a request: {body.decode()}")


async def _show_callback(callback: Callback) -> None:
    show(f"{callback.timestamp:%H:%M:%S} {callback.name} {_of(callback.data)}")
    for name in ("call_id", "correlation_id", "client_session_id", "resume_token"):
        if value := callback.data.get(name):
            show(f"         {name}: {value}")


def _of(data: Any) -> str:
    """What the callback is about: `git/git_log completed (result)`, or nothing for a test."""
    if "call_id" not in data:
        return ""
    outcome = f" ({data['outcome']})" if data.get("outcome") else ""
    return f"{data.get('upstream')}/{data.get('tool')} {data.get('status')}{outcome}"


async def _show_notice(notice: Gap | Terminated) -> None:
    match notice:
        case Gap():
            tell("Some callbacks were given up while this did not listen. Poll for them: GET /v1/events")
        case Terminated():
            tell(f"The subscription has ended: {notice.message}")
