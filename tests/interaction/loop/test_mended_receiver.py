"""The story of a receiver that breaks in three ways and is mended, with a service, commands and sockets of their own.

The API, the command line and the metrics show each reason. After mending, one command sends everything in order, although
the next step of every delivery's retry schedule is ten minutes away.
"""

import os
import re
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ringback.client import RingbackClient
from tests.support.engine import wait_until
from tests.support.forked_commands import running_forked_command
from tests.support.name_servers import Behaviour, NameServer, Records, name_server
from tests.support.processes import running_process
from tests.support.receivers import (
    NO_CONTENT,
    AcceptedConnection,
    CertificateAuthority,
    response,
    serving_receiver,
)
from tests.support.upstreams import ControlledUpstream, serving

HOST = "agent.test"
FAILED = response("500 Internal Server Error", connection="close")
STEPS_SECONDS = [600] * 20
"""Nothing that arrives within the test has waited for one of these."""
ADDRESS = Records("127.0.0.1", ttl_seconds=0)

pytestmark = pytest.mark.requirement("R27")


class BreakableReceiver:
    """A receiver whose name, certificate and answer the test changes."""

    def __init__(self, names: NameServer) -> None:
        self._names = names
        self._authority = CertificateAuthority()
        self._answer = FAILED
        self._certificate = self._authority.server(HOST)
        self.accepted: list[str] = []
        """The webhook-ids of accepted callbacks, in the order of their arrival."""

    def write_authority(self, folder: Path) -> str:
        return str(self._authority.write_certificate(folder / "authority.pem"))

    def tls_context(self) -> ssl.SSLContext:
        context = self._authority.server(HOST)
        context.sni_callback = self._choose_certificate
        return context

    async def behave(self, connection: AcceptedConnection) -> None:
        request = await connection.request()
        if request is not None and self._answer is NO_CONTENT:
            self.accepted.append(request.headers["webhook-id"])
        await connection.send(self._answer)

    def lose_name(self) -> None:
        self._names.names[HOST] = Behaviour.NO_SUCH_NAME

    def show_wrong_certificate(self) -> None:
        self._names.names[HOST] = ADDRESS
        self._certificate = self._authority.server("another.test")

    def mend(self) -> None:
        self._certificate = self._authority.server(HOST)
        self._answer = NO_CONTENT

    def _choose_certificate(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._certificate


@dataclass(frozen=True, slots=True)
class Story:
    service: str
    client: RingbackClient
    receiver: BreakableReceiver
    webhook_id: str
    folder: Path

    async def run_command(self, *arguments: str) -> str:
        """Run `ringback …`, and return what it says on both outputs."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RINGBACK_")}
        environment = inherited | {"RINGBACK_URL": self.service, "COLUMNS": "300"}
        async with running_forked_command(*arguments, folder=self.folder, environment=environment) as command:
            out, err = await command.communicate()
            assert command.returncode == 0, err.decode()
            return out.decode() + err.decode()

    async def expect_reason(self, category: str) -> None:
        """Wait for an attempt that ends so, and find its reason in the API, the command line and the metrics."""

        async def is_told() -> bool:
            return (await self.client.webhook(self.webhook_id)).last_error == category

        await wait_until(is_told)
        (first,) = [each async for each in self.client.deliveries() if each.attempt_count]
        assert (await self.client.delivery(first.id)).attempts[0].category == category
        assert category in await self.run_command("webhooks", "list")
        assert f'ringback_attempts_total{{category="{category}"}} 1.0' in await self.client.metrics()


@asynccontextmanager
async def running_story(folder: Path) -> AsyncGenerator[Story]:
    upstream = ControlledUpstream()
    async with serving(upstream.app()) as server, name_server({HOST: ADDRESS}) as names:
        receiver = BreakableReceiver(names)
        spec = {
            "folder": str(folder),
            "upstream": server.url,
            "name_server": names.address,
            "ca_file": receiver.write_authority(folder),
        }
        async with (
            serving_receiver(receiver.behave, tls=receiver.tls_context()) as address,
            running_process(**spec) as service,
            RingbackClient(service.url) as client,
        ):
            webhook = await client.register_webhook(
                address.url(host=HOST), ordered=True, retries={"schedule": STEPS_SECONDS}
            )
            yield Story(service.url, client, receiver, webhook.id, folder)


async def test_each_failure_is_shown_and_after_the_repair_one_command_sends_everything_in_order(tmp_path: Path) -> None:
    async with running_story(tmp_path) as story:
        for text in ("first", "second", "third"):
            started = await story.client.start_call("stage", "echo", {"say": text}, client_session_id="session-1")
            await story.client.wait(started.call.id)
        await story.expect_reason("http_5xx")
        for do_break, category in (
            (story.receiver.lose_name, "name_not_found"),
            (story.receiver.show_wrong_certificate, "certificate_name_mismatch"),
        ):
            do_break()
            await story.run_command("webhooks", "enable", story.webhook_id)
            await story.expect_reason(category)

        story.receiver.mend()
        said = await story.run_command("webhooks", "enable", story.webhook_id)

        async def has_everything() -> bool:
            return len(story.receiver.accepted) == 3

        await wait_until(has_everything)
        events = (await story.client.poll_events()).events

    assert re.search(r"3 due now, next attempt \d\d:\d\d:\d\d UTC", said)
    assert story.receiver.accepted == [event.event_id for event in events]
