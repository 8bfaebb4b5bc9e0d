"""Opens the listener's parts, runs them, and stops them in order."""

import asyncio
import os
import secrets as random_source
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringback.cli.durable_listener.callback_dispatcher import CallbackDispatcher
from ringback.cli.durable_listener.defaults import ATTEMPTS_MAX_DEFAULT, PARALLEL_DEFAULT
from ringback.cli.durable_listener.event_reader import EventReader, find_first_cursor
from ringback.cli.durable_listener.handlers import CallbackHandler
from ringback.cli.durable_listener.inbox import Inbox, open_inbox
from ringback.cli.durable_listener.state_file import EventSelection, StateFileUnusable, locked_state_file
from ringback.client import RingbackClient
from ringback.client.http_transport import SystemClientClock
from ringback.signing import secrets

SUBSCRIPTION_ID_BYTES: Final = 8

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerState:
    """The open state file."""

    inbox: Inbox
    is_new: bool
    """Whether this start made the file."""


@asynccontextmanager
async def open_listener_state(
    path: Path, client: RingbackClient, selection: EventSelection, *, from_start: bool
) -> AsyncGenerator[ListenerState]:
    """Lock and open the state file. A new one begins at the end of the service's log, or at its oldest event."""
    with locked_state_file(path):
        async with open_inbox(path) as inbox:
            stored = await inbox.read_setting("selection")
            if stored is None:
                await _initialize(inbox, client, selection, from_start=from_start)
            elif stored != selection.serialize():
                raise StateFileUnusable(
                    f"{path} belongs to a listener with another selection of events: {stored}. "
                    "Give this one a file of its own: --state PATH"
                )
            yield ListenerState(inbox=inbox, is_new=stored is None)


async def _initialize(inbox: Inbox, client: RingbackClient, selection: EventSelection, *, from_start: bool) -> None:
    cursor = await find_first_cursor(client, selection, from_start=from_start)
    begun = {} if cursor is None else {"cursor": cursor, "first_cursor": cursor}
    await inbox.write_settings(
        {
            **begun,
            "selection": selection.serialize(),
            "subscription_id": f"listen_{random_source.token_hex(SUBSCRIPTION_ID_BYTES)}",
        }
    )


async def choose_secret(inbox: Inbox, given: str | None) -> tuple[str, bool]:
    """The secret that signs forwarded callbacks, and whether it is new: the given one, the stored one, or a new one."""
    stored = await inbox.read_setting("secret")
    if given is None and stored is not None:
        return stored, False
    secret = given or secrets.generate_secret(os.urandom(secrets.SECRET_BYTES))
    await inbox.write_settings({"secret": secret})
    return secret, given is None


async def read_subscription_id(inbox: Inbox) -> str:
    return await inbox.read_setting("subscription_id") or "listen"


class DurableListener:
    def __init__(
        self,
        client: RingbackClient,
        inbox: Inbox,
        selection: EventSelection,
        handler: CallbackHandler,
        *,
        report: Report,
        attempts_max: int = ATTEMPTS_MAX_DEFAULT,
        parallel: int = PARALLEL_DEFAULT,
        shows_handled: bool = True,
    ) -> None:
        clock = SystemClientClock()
        self._inbox = inbox
        self._report = report
        self._dispatcher = CallbackDispatcher(
            inbox,
            handler,
            clock=clock,
            report=report,
            attempts_max=attempts_max,
            parallel=parallel,
            shows_handled=shows_handled,
        )
        self._reader = EventReader(
            client,
            inbox,
            selection,
            clock=clock,
            report=report,
            add_callback=self._dispatcher.add_callback,
            wait_for_space=self._dispatcher.wait_for_space,
        )

    async def run(self, stop: asyncio.Event, abort: asyncio.Event) -> None:
        """Listen until `stop` is set, then wait for the handlers that run, until `abort` is set.

        Raises a `ClientError` that another attempt cannot repair, and the errors of the state file and of the output.
        """
        for waiting in await self._inbox.list_waiting():
            self._dispatcher.add_callback(waiting)
        try:
            async with asyncio.TaskGroup() as group:
                working = [group.create_task(self._reader.run()), group.create_task(self._dispatcher.run())]
                await stop.wait()
                for task in working:
                    task.cancel()
            await self._drain(abort)
        except BaseExceptionGroup as group:
            raise find_first_error(group) from None
        finally:
            await self._dispatcher.cancel()

    async def _drain(self, abort: asyncio.Event) -> None:
        if attempts := self._dispatcher.count_attempts():
            self._report(f"Waiting for {attempts} handlers. Interrupt again to end them; their callbacks come again.")
        draining = asyncio.create_task(self._dispatcher.drain())
        aborting = asyncio.create_task(abort.wait())
        try:
            await asyncio.wait({draining, aborting}, return_when=asyncio.FIRST_COMPLETED)
            if draining.done():
                draining.result()
        finally:
            draining.cancel()
            aborting.cancel()


def find_first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of nested groups: one error ends the listener, and the command reports one."""
    first = group.exceptions[0]
    return find_first_error(first) if isinstance(first, BaseExceptionGroup) else first  # pyright: ignore[reportUnknownArgumentType]
