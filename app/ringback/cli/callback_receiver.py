"""`ringback listen --port`: a receiver on this machine, with a webhook that it registers and removes."""

import asyncio
import os
import re
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

from ringback.cli.callback_server import serve_receiver
from ringback.cli.callback_text import describe_callback, format_callback
from ringback.cli.output import exit_with_error, print_message, print_output
from ringback.cli.stop_signals import print_in_thread
from ringback.client import ClientError, RingbackClient
from ringback.receiver import Callback, Gap, NotReady, ReceiverApp, Terminated
from ringback.signing import secrets

HOST: Final = "127.0.0.1"
HOST_NAME_LENGTH_MAX: Final = 48
"""Leaves room for the rest of a webhook's name."""


async def receive_callbacks(
    port: int,
    secret: str | None,
    *,
    client: RingbackClient | None,
    as_json: bool,
    handle_stop_signals: Callable[[asyncio.Event], object],
) -> None:
    """Receive callbacks and print them until a signal. With a client, register a webhook for that time.

    `handle_stop_signals` lets the first signal set an event. It is called after the registration, which a signal ends at once.
    Output that cannot be written ends it, and raises the `OSError`: the callback is refused, and its sender keeps it.
    """
    secret = secret or secrets.generate_secret(os.urandom(secrets.SECRET_BYTES))
    format_text = format_callback if as_json else describe_callback
    stop = asyncio.Event()
    failures: list[OSError] = []

    async def print_callback(callback: Callback) -> None:
        try:
            await print_in_thread(print_output, format_text(callback))
        except OSError as error:
            failures.append(error)
            stop.set()
            raise NotReady(reason="The output cannot be written.") from error

    receiver = ReceiverApp([secret], on_callback=print_callback, on_notice=_print_notice)
    with _bind_socket(port) as listener:
        port = listener.getsockname()[1]
        serving = serve_receiver(receiver, listener, on_refused=_print_refusal)
        registered = _registered_webhook(client, port, secret, on_registered=lambda: handle_stop_signals(stop))
        async with serving, registered:
            print_message(f"Listening on {build_address(port)}")
            await stop.wait()
    if failures:
        raise failures[0]


def build_address(port: int) -> str:
    return f"http://{HOST}:{port}/"


def derive_webhook_name(host_name: str, port: int) -> str:
    """The same name at every start on this machine and port, so that a listener that was killed leaves no second webhook.

    Names are 1 to 64 letters, digits and `._:-`, and begin with a letter or a digit.
    """
    return f"listen-{re.sub(r'[^A-Za-z0-9._-]', '-', host_name)[:HOST_NAME_LENGTH_MAX]}-{port}"


@contextmanager
def _bind_socket(port: int) -> Generator[socket.socket]:
    try:
        listener = socket.create_server((HOST, port))
    except OSError as error:
        exit_with_error(f"Cannot listen on {HOST}:{port}: {error.strerror}. Choose another --port.")
    with listener:
        yield listener


@asynccontextmanager
async def _registered_webhook(
    client: RingbackClient | None, port: int, secret: str, *, on_registered: Callable[[], object]
) -> AsyncGenerator[None]:
    """Register a webhook for the duration of the context, if there is a client."""
    address = build_address(port)
    if client is None:
        on_registered()
        yield
        return
    async with client:
        name = derive_webhook_name(socket.gethostname(), port)
        webhook = await client.put_webhook(name, address, secret=secret, description="ringback listen")
        on_registered()
        try:
            print_message(f"Registered the webhook {webhook.id}, named {name}. {webhook.hears}")
            with suppress(ClientError):  # a key that may register webhooks need not be allowed to list them
                await _report_other_webhooks(client, webhook.id, address)
            yield
        finally:
            await _remove_webhook(client, webhook.id)


async def _report_other_webhooks(client: RingbackClient, own_id: str, address: str) -> None:
    """Name the caller's other webhooks that send to this address: this receiver does not have their secrets."""
    async for webhook in client.webhooks():
        if webhook.id != own_id and webhook.url.startswith((address, address.replace(HOST, "localhost"))):
            print_message(
                f"Your webhook {webhook.id} sends to {webhook.url}, too. Its callbacks are rejected here, because it has a "
                f"secret of its own. Remove it (ringback webhooks remove {webhook.id}), or listen for it alone: --secret WHSEC "
                "without --url"
            )


async def _remove_webhook(client: RingbackClient, webhook_id: str) -> None:
    try:
        await client.delete_webhook(webhook_id)
    except ClientError as error:
        print_message(
            f"{webhook_id} could not be removed: {error} Remove it later: ringback webhooks remove {webhook_id}"
        )


def _print_refusal(body: bytes) -> None:
    """Print why a request was rejected: the usual reason is a wrong secret."""
    print_message(f"Rejected a request: {body.decode()}")


async def _print_notice(notice: Gap | Terminated) -> None:
    match notice:
        case Gap():
            print_message(
                "Some callbacks were given up while this receiver was down. Read their events: ringback events"
            )
        case Terminated():
            print_message(f"The subscription has ended: {notice.message}")
