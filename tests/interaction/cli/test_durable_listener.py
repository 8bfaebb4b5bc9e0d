"""The durable listener in this process, at the event stream of a real service."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from standardwebhooks import Webhook

from ringback.cli.durable_listener.commands import CommandHandler
from ringback.cli.durable_listener.forwarding import ForwardHandler, create_http_client
from ringback.cli.durable_listener.handlers import CallbackHandler, Failed, Handled, HandlerOutcome, ReceivedCallback
from ringback.cli.durable_listener.inbox import Inbox, open_inbox
from ringback.cli.durable_listener.listener import DurableListener, choose_secret, open_listener_state
from ringback.cli.durable_listener.state_file import EventSelection, StateFileUnusable
from ringback.client import ClientError, RingbackClient, Unauthenticated
from ringback.domain.principal import DEFAULT_SCOPES, Scope
from ringback.receiver import Callback, parse
from tests.support.api_server import serving_api
from tests.support.application import RunningApplication, running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.processes import is_running
from tests.support.receivers import NO_CONTENT, respond_with, serving_receiver
from tests.support.upstreams import wait_until_true

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NAMES: Final = ("call.finished", "call.input_required")

pytestmark = pytest.mark.requirement("R16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    ringback: RunningApplication
    url: str

    @asynccontextmanager
    async def open_client(self, principal: str) -> AsyncGenerator[RingbackClient]:
        """A client that may report calls, as this principal."""
        _, key = await self.ringback.app.services.api_keys.create_key(
            principal, name="test", scopes=DEFAULT_SCOPES | {Scope.ADOPT}, upstreams=None
        )
        async with RingbackClient(self.url, api_key=key) as client:
            yield client


@pytest.fixture(scope="module")
async def service(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Service]:
    folder = module_path_factory.mktemp("service")
    async with running_application(folder) as ringback, serving_api(ringback.app.api) as url:
        yield Service(ringback=ringback, url=url)


@pytest.fixture
async def client(service: Service, request: pytest.FixtureRequest) -> AsyncGenerator[RingbackClient]:
    """A client of a principal of this test."""
    async with service.open_client(request.node.name) as client:
        yield client


@dataclass
class RecordingHandler:
    outcomes: list[HandlerOutcome] = field(default_factory=list[HandlerOutcome])
    received: list[ReceivedCallback] = field(default_factory=list[ReceivedCallback])

    async def handle_callback(self, received: ReceivedCallback) -> HandlerOutcome:
        self.received.append(received)
        return self.outcomes.pop(0) if self.outcomes else Handled()

    async def wait_for(self, count: int) -> list[ReceivedCallback]:
        await wait_until_true(lambda: len(self.received) >= count)
        return self.received

    def correlations(self) -> list[str | None]:
        return [received.callback.correlation_id for received in self.received]


@asynccontextmanager
async def listening(
    client: RingbackClient,
    service: Service,
    path: Path,
    handler: CallbackHandler,
    *,
    from_start: bool = False,
    names: Sequence[str] = NAMES,
    **selected: Any,
) -> AsyncGenerator[list[str]]:
    """Run a listener; yields what it reports to its user."""
    selection = EventSelection(url=service.url, names=names, **selected)
    reports: list[str] = []
    async with open_listener_state(path, client, selection, from_start=from_start) as state:
        listener = DurableListener(client, state.inbox, selection, handler, report=reports.append)
        stop = asyncio.Event()
        running = asyncio.create_task(listener.run(stop, asyncio.Event()))
        try:
            yield reports
        finally:
            stop.set()
            async with asyncio.timeout(WAIT_SECONDS):
                await running


async def end_call(client: RingbackClient, correlation: str, session: str = "s1") -> str:
    """End a call, and return its id."""
    ended = await client.report(
        f"{session}-{correlation}",
        "stage",
        "build",
        client_session_id=session,
        correlation_id=correlation,
        result={"content": [{"type": "text", "text": correlation}]},
    )
    return ended.call.id


async def test_calls_that_end_while_the_listener_is_away_are_handled_at_its_next_start(
    service: Service, client: RingbackClient, tmp_path: Path
) -> None:
    handler = RecordingHandler()
    await end_call(client, "earlier")
    async with listening(client, service, tmp_path / "state.db", handler):
        await end_call(client, "first")
        await handler.wait_for(1)
    for correlation in ("second", "third"):
        await end_call(client, correlation)
    async with listening(client, service, tmp_path / "state.db", handler):
        await handler.wait_for(3)

    assert handler.correlations() == ["first", "second", "third"]


async def test_from_start_begins_with_the_oldest_event_and_only_at_the_first_start(
    service: Service, client: RingbackClient, tmp_path: Path
) -> None:
    handler = RecordingHandler()
    await end_call(client, "earlier")
    for _ in range(2):
        async with listening(client, service, tmp_path / "state.db", handler, from_start=True):
            await handler.wait_for(1)

    assert handler.correlations() == ["earlier"]


@pytest.mark.requirement("R18")
async def test_a_callback_has_the_body_of_a_delivery_and_its_token_resumes_the_call(
    service: Service, client: RingbackClient, tmp_path: Path
) -> None:
    handler = RecordingHandler()
    async with listening(client, service, tmp_path / "state.db", handler):
        call_id = await end_call(client, "c1")
        (received,) = await handler.wait_for(1)
        body = json.loads(received.body)
        resumed = await client.resume(body["data"]["resume_token"])

    assert resumed.call.id == call_id
    assert resumed.result is not None
    assert set(body) == {"eventId", "name", "timestamp", "cursor", "data"}
    assert body["eventId"] == received.event_id
    assert body["data"] | {"resume_token": ""} == {
        **dict((await first_event(client)).data),
        "resume_token": "",
        "resume_url": f"{service.url}/v1/resume",
        "mcp_url": f"{service.url}/mcp",
        "resource_uri": f"ringback://calls/{call_id}",
    }


async def first_event(client: RingbackClient) -> Any:
    return next(event for event in (await client.poll_events()).events if event.name == "call.finished")


async def test_only_the_selected_calls_and_events_are_handled(
    service: Service, client: RingbackClient, tmp_path: Path
) -> None:
    of_session, of_correlation = RecordingHandler(), RecordingHandler()
    async with (
        listening(client, service, tmp_path / "1.db", of_session, client_session_id="s2"),
        listening(client, service, tmp_path / "2.db", of_correlation, correlation_id="c1", names=("call.finished",)),
    ):
        await end_call(client, "c1", "s1")
        await end_call(client, "c2", "s2")
        await client.report("progress", "stage", "build", client_session_id="s2", progress={"progress": 1})
        await end_call(client, "c1", "s2")
        await of_session.wait_for(2)
        await of_correlation.wait_for(2)

    assert of_session.correlations() == ["c2", "c1"]
    assert [received.callback.client_session_id for received in of_correlation.received] == ["s1", "s2"]


@pytest.mark.requirement("R23")
async def test_a_forwarded_callback_is_signed_as_a_delivery(
    service: Service, client: RingbackClient, tmp_path: Path
) -> None:
    busy = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n"
    async with (
        serving_receiver(respond_with(busy, NO_CONTENT)) as receiver,
        create_http_client() as http,
        open_inbox(tmp_path / "secret.db") as inbox,
    ):
        secret, is_new = await choose_secret(inbox, None)
        assert (await choose_secret(inbox, None), is_new) == ((secret, False), True)
        handler = ForwardHandler(
            receiver.url(),
            secret=secret,
            subscription_id="listen_1",
            http=http,
            current_time=lambda: datetime.now(UTC),  # noqa: TID251 - verified with the machine's clock
        )
        async with listening(client, service, tmp_path / "state.db", handler) as reports:
            await end_call(client, "c1")
            requests = await receiver.wait_for_requests(2)
            await wait_until_true(lambda: len(reports) >= 2)

    verified = [Webhook(secret).verify(request.body, request.headers) for request in requests]
    assert verified[0] == verified[1]
    assert {request.headers["webhook-id"] for request in requests} == {verified[0]["eventId"]}
    assert {request.headers["x-mcp-subscription-id"] for request in requests} == {"listen_1"}
    assert "responded with 503; attempt 2" in reports[0]
    assert reports[1].endswith("handled")


async def test_an_event_whose_own_id_has_a_full_stop_is_delivered_and_forwarded(
    service: Service, client: RingbackClient, tmp_path: Path
) -> None:
    async with (
        serving_receiver(respond_with(NO_CONTENT)) as receiver,
        serving_receiver(respond_with(NO_CONTENT)) as forwarded,
        create_http_client() as http,
    ):
        handler = ForwardHandler(
            forwarded.url(),
            secret=SECRET,
            subscription_id="listen_1",
            http=http,
            current_time=lambda: datetime.now(UTC),  # noqa: TID251 - verified with the machine's clock
        )
        await client.declare_event_type("order.paid")
        await client.register_webhook(receiver.url(), secret=SECRET, events=["order.paid"])
        async with listening(client, service, tmp_path / "state.db", handler, names=["order.paid"]) as reports:
            await client.publish_event("order.paid", {"order": 7}, id="invoice.2026.7")
            requests = [*await receiver.wait_for_requests(1), *await forwarded.wait_for_requests(1)]
            await wait_until_true(lambda: bool(reports))

    verified = [Webhook(SECRET).verify(request.body, request.headers) for request in requests]
    assert [body["eventId"] for body in verified] == ["invoice.2026.7"] * 2
    assert all(request.headers["webhook-id"].startswith("msg_event_") for request in requests)


async def test_a_command_gets_the_callback_and_its_ids_and_is_run_again_after_a_failure(
    service: Service, client: RingbackClient, tmp_path: Path
) -> None:
    command = (
        f'cd {tmp_path}; echo "$RINGBACK_WEBHOOK_ID $RINGBACK_ATTEMPT $RINGBACK_CLIENT_SESSION_ID '
        '$RINGBACK_CORRELATION_ID $RINGBACK_OUTCOME" >> ids; cat > body; [ "$RINGBACK_ATTEMPT" = 2 ]'
    )
    handler = CommandHandler(command, timeout_seconds=WAIT_SECONDS, environment=os.environ)
    async with listening(client, service, tmp_path / "state.db", handler) as reports:
        call_id = await end_call(client, "two words; $(id)")
        await wait_until_true(lambda: len(reports) >= 2)

    body = json.loads((tmp_path / "body").read_bytes())
    event_id = body["eventId"]
    assert body["data"]["call_id"] == call_id
    assert (tmp_path / "ids").read_text(encoding="utf-8").splitlines() == [
        f"{event_id} {attempt} s1 two words; $(id) result" for attempt in (1, 2)
    ]
    assert "exit code 1" in reports[0]
    assert reports[1].endswith("handled")


async def test_a_command_that_runs_too_long_is_tried_again() -> None:
    handler = CommandHandler("sleep 3600", timeout_seconds=0.01, environment=os.environ)
    outcome = await handler.handle_callback(make_received())

    assert isinstance(outcome, Failed)
    assert "0.01 s" in outcome.reason


async def test_a_cancelled_command_ends_with_its_children(tmp_path: Path) -> None:
    child_file = tmp_path / "child"
    command = f"sleep 3600 & echo $! > {child_file}.new; mv {child_file}.new {child_file}; wait"
    handler = CommandHandler(command, timeout_seconds=3600.0, environment=os.environ)
    handling = asyncio.create_task(handler.handle_callback(make_received()))
    await wait_until_true(child_file.exists)
    handling.cancel()
    await asyncio.gather(handling, return_exceptions=True)

    child = int(child_file.read_text(encoding="utf-8"))
    await wait_until_true(lambda: not is_running(child))


@pytest.mark.parametrize(
    ("command", "says"), [("exit 65", "refused"), ("no-such-program-7", "could not run"), ("kill -9 $$", "137")]
)
async def test_how_a_command_ends_says_what_happens_to_the_callback(command: str, says: str) -> None:
    handler = CommandHandler(command, timeout_seconds=WAIT_SECONDS, environment=os.environ)
    outcome = await handler.handle_callback(make_received())

    assert not isinstance(outcome, Handled)
    assert says in outcome.reason


def make_received() -> ReceivedCallback:
    body = b'{"eventId":"evt_1","name":"call.finished","timestamp":"2026-11-20T17:00:00.000Z","data":{}}'
    callback = parse(body)
    assert isinstance(callback, Callback)
    return ReceivedCallback(event_id="evt_1", callback=callback, body=body, attempt=1)


async def test_a_key_that_may_only_read_gets_callbacks_without_a_token(service: Service, tmp_path: Path) -> None:
    handler = RecordingHandler()
    _, key = await service.ringback.app.services.api_keys.create_key(
        "reader", name="test", scopes=frozenset({Scope.READ}), upstreams=None
    )
    async with (
        service.open_client("reader") as reporter,
        RingbackClient(service.url, api_key=key) as reader,
        listening(reader, service, tmp_path / "state.db", handler),
    ):
        await end_call(reporter, "c1")
        (received,) = await handler.wait_for(1)

    assert received.callback.resume_token is None
    assert received.callback.call_id is not None


async def test_a_start_with_a_wrong_key_or_event_ends_with_the_service_s_own_words(
    service: Service, client: RingbackClient, tmp_path: Path
) -> None:
    handler = RecordingHandler()
    async with RingbackClient(service.url, api_key="rbk_wrong") as stranger:
        with pytest.raises(Unauthenticated):
            async with listening(stranger, service, tmp_path / "1.db", handler):
                pass
    with pytest.raises(ClientError, match=r"call\.finished"):
        async with listening(client, service, tmp_path / "2.db", handler, names=("call.finnished",)):
            pass


async def test_a_key_that_is_rejected_later_ends_the_listener(
    service: Service, client: RingbackClient, tmp_path: Path
) -> None:
    selection = EventSelection(url=service.url, names=NAMES)
    async with (
        open_listener_state(tmp_path / "state.db", client, selection, from_start=False) as state,
        RingbackClient(service.url, api_key="rbk_wrong") as stranger,
    ):
        listener = DurableListener(stranger, state.inbox, selection, RecordingHandler(), report=print)
        with pytest.raises(Unauthenticated):
            await asyncio.wait_for(listener.run(asyncio.Event(), asyncio.Event()), WAIT_SECONDS)


async def test_a_state_file_with_another_selection_is_refused(
    service: Service, client: RingbackClient, tmp_path: Path
) -> None:
    handler = RecordingHandler()
    async with listening(client, service, tmp_path / "state.db", handler, client_session_id="s1"):
        pass
    with pytest.raises(StateFileUnusable, match=r"another selection.*--state PATH"):
        async with listening(client, service, tmp_path / "state.db", handler, client_session_id="s2"):
            pass


async def test_a_listener_that_has_listened_before_waits_for_a_service_that_is_down(
    service: Service, client: RingbackClient, tmp_path: Path
) -> None:
    handler = RecordingHandler(outcomes=[Failed("not yet")])
    async with listening(client, service, tmp_path / "state.db", handler):
        await end_call(client, "c1")
        await handler.wait_for(1)
    async with (
        RingbackClient("http://127.0.0.1:1") as unreachable,
        listening(unreachable, service, tmp_path / "state.db", handler) as reports,
    ):
        await handler.wait_for(2)
        await wait_until_true(lambda: any("tries again" in report for report in reports))

    assert handler.correlations() == ["c1", "c1"]


async def test_a_state_file_that_fails_while_the_listener_stops_ends_it_with_an_error(
    service: Service, client: RingbackClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The callback is handled again at the next start, and the listener ended as if it was not."""
    reports: list[str] = []

    class SlowHandler(RecordingHandler):
        async def handle_callback(self, received: ReceivedCallback) -> HandlerOutcome:
            outcome = await super().handle_callback(received)
            await wait_until_true(lambda: any("Waiting for 1 handlers" in report for report in reports))
            return outcome

    async def fail(*_: object) -> None:
        raise StateFileUnusable("The disk is full.")

    async def listen_until_a_callback_is_handled() -> None:
        nonlocal reports
        handler = SlowHandler()
        async with listening(client, service, tmp_path / "listener.db", handler) as reports:
            await end_call(client, "slow")
            await handler.wait_for(1)

    monkeypatch.setattr(Inbox, "mark_handled", fail)

    with pytest.raises(StateFileUnusable, match="full"):
        await listen_until_a_callback_is_handled()
