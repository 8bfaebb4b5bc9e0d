"""Large responses whose clients do not read: how many bytes they hold, and what the next client gets."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import request_response
from starlette.types import Message, Receive, Scope, Send

from ringback.api.large_responses import PIECE_BYTES, PIECES_IN_TURN, LargeResponseMiddleware
from ringback.api.llms_endpoint import LLMS_TEXT
from ringback.api.openapi_endpoint import OpenApiEndpoint
from ringback.domain import jsontext
from ringback.domain.call import Call
from ringback.domain.errors import Unavailable
from ringback.domain.principal import Caller, Principal
from ringback.http_server.limits import HttpLimits
from ringback.services.limits.unread_responses import (
    ADDRESS_READER_PREFIX,
    GUARANTEED_BYTES,
    IS_CONNECTED,
    LARGE_RESPONSE_BYTES,
    PRINCIPAL_UNREAD_BYTES_MAX,
    RESERVED_BYTES,
    UNREAD_BYTES_MAX,
    UnreadResponses,
    find_response_memory,
)
from ringback.services.response_hooks import on_response_written, response_written_hook
from ringback.ui.assets import ASSETS
from tests.support.limits import WAIT_SECONDS

SIZE = 2 * LARGE_RESPONSE_BYTES
ALICE, BOB = Principal("alice"), Principal("bob")


@dataclass(slots=True)
class Reader:
    """A client that reads `reads` messages of its response, and no more until `resume` is set."""

    reads: int = 1_000_000
    sent: list[Message] = field(default_factory=list[Message])
    stuck: asyncio.Event = field(default_factory=asyncio.Event)
    resume: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, message: Message) -> None:
        if len(self.sent) >= self.reads:
            self.stuck.set()
            await self.resume.wait()
        self.sent.append(message)

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


@dataclass(slots=True)
class Bench:
    responses: UnreadResponses
    stored: bytes = b"x" * SIZE
    stream: list[bytes] | None = None
    """The events of a stream; None for a response with a length."""
    store_reads: int = 0
    hooks_left: int = 0

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        on_response_written(scope["state"], _never_run)
        try:
            await self._respond(scope, receive, send)
        finally:
            self.hooks_left += response_written_hook(scope["state"]) is not None

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.stream is None:
            await Response(self._read_result(scope))(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for event in self.stream:
            await send({"type": "http.response.body", "body": event, "more_body": True})

    def _read_result(self, scope: Scope) -> bytes:
        principal = cast("Caller", scope["state"]["caller"]).principal
        call = cast("Call", StoredCall(jsontext.sha256(self.stored), len(self.stored)))
        memory = find_response_memory(scope["state"])
        if (held := memory.find_shared(principal, call)) is not None:
            return held
        self.store_reads += 1
        return memory.use_shared(principal, call, bytes(bytearray(self.stored)))

    async def request(
        self,
        reader: Reader,
        principal: Principal = ALICE,
        *,
        through: LargeResponseMiddleware | None = None,
        is_connected: Callable[[], bool] = lambda: True,
    ) -> None:
        scope: Scope = {
            "type": "http",
            "method": "GET",
            "state": {"caller": Caller(principal=principal, scopes=frozenset()), IS_CONNECTED: is_connected},
        }
        middleware = through or LargeResponseMiddleware(self.respond, responses=self.responses)
        await middleware(scope, _receive, reader.send)

    @asynccontextmanager
    async def stuck_readers(self, count: int, principal: Principal = ALICE) -> AsyncGenerator[list[Reader]]:
        readers = [Reader(reads=2) for _ in range(count)]
        async with asyncio.TaskGroup() as group:
            for reader in readers:
                group.create_task(self.request(reader, principal))
                await _wait(reader)
            yield readers
            for reader in readers:
                reader.resume.set()


@dataclass(slots=True)
class StoredCall:
    result_sha256: str
    result_bytes: int


async def _never_run() -> None:
    raise AssertionError


async def _wait(reader: Reader) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        await reader.stuck.wait()


async def _receive() -> Message:
    """The client is there and sends nothing."""
    await asyncio.Event().wait()
    raise AssertionError


async def test_many_readers_of_one_result_hold_one_copy_and_each_gets_all_of_it() -> None:
    bench = Bench(UnreadResponses(principal_bytes_max=SIZE))
    async with bench.stuck_readers(90) as readers:
        assert bench.responses.unread_bytes == SIZE
        assert all(len(reader.body) <= PIECE_BYTES for reader in readers)
    assert {reader.body == bench.stored for reader in readers} == {True}
    assert all("more_body" not in reader.sent[-1] for reader in readers)
    assert (bench.store_reads, bench.responses.unread_bytes, bench.responses.shared_results) == (1, 0, {})


async def test_unread_bytes_of_one_principal_leave_room_for_another_and_come_back() -> None:
    bench = Bench(UnreadResponses(bytes_max=3 * SIZE, principal_bytes_max=2 * SIZE))
    async with bench.stuck_readers(1):
        bench.stored = b"y" * SIZE
        async with bench.stuck_readers(1):
            bench.stored = b"z" * SIZE
            with pytest.raises(Exception, match="have not read") as refused:
                await bench.request(Reader())
            assert "QuotaExceeded" in repr(refused.value)
            await bench.request(bobs := Reader(), BOB)
            assert (bobs.status, bobs.body) == (200, bench.stored)
            assert bench.responses.unread_bytes == 2 * SIZE
    await bench.request(later := Reader())
    assert (later.body, bench.responses.unread_bytes) == (bench.stored, 0)


async def test_a_response_of_any_endpoint_beyond_the_limit_becomes_a_problem_and_runs_no_hook() -> None:
    bench = Bench(UnreadResponses(bytes_max=SIZE, principal_bytes_max=2 * SIZE))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        on_response_written(scope["state"], _never_run)
        await Response(b"page" * SIZE)(scope, receive, send)
        bench.hooks_left += response_written_hook(scope["state"]) is not None

    scope: Scope = {"type": "http", "path": "/v1/calls", "method": "GET", "state": {}, "client": ("192.0.2.1", 1)}
    await LargeResponseMiddleware(app, responses=bench.responses)(scope, _receive, (reader := Reader()).send)
    assert (reader.status, bench.hooks_left) == (429, 0)
    assert b"Read them or close the connections" in reader.body
    assert bench.responses.unread_bytes == 0


async def test_an_event_beyond_the_limit_ends_its_stream_and_earlier_events_hold_nothing() -> None:
    bench = Bench(UnreadResponses(principal_bytes_max=SIZE), stream=[b"a" * SIZE, b"b" * SIZE, b"c" * (SIZE + 1)])
    reader = Reader()
    with pytest.raises(ClientDisconnect):
        await bench.request(reader)
    assert reader.body == b"a" * SIZE + b"b" * SIZE
    assert (reader.sent[-1]["more_body"], bench.hooks_left, bench.responses.unread_bytes) == (False, 0, 0)


async def test_a_reader_that_disconnects_gives_its_bytes_back() -> None:
    bench = Bench(UnreadResponses())
    reader = Reader(reads=2)
    request = asyncio.create_task(bench.request(reader))
    await _wait(reader)
    assert bench.responses.unread_bytes == SIZE
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    assert (bench.responses.unread_bytes, bench.responses.shared_results) == (0, {})


async def test_the_rest_of_a_response_takes_no_turns_after_its_client_has_disconnected() -> None:
    """Each of its 240 pieces waited for a turn beside others that read nothing, and more clients came meanwhile."""
    bench = Bench(UnreadResponses())
    middleware = LargeResponseMiddleware(bench.respond, responses=bench.responses)
    gone = [Reader() for _ in range(50)]
    connected = True

    def is_connected() -> bool:
        return connected

    tasks = [
        asyncio.create_task(bench.request(reader, through=middleware, is_connected=is_connected)) for reader in gone
    ]
    for _ in range(10):
        await asyncio.sleep(0)
    connected, written = False, _count_pieces(*gone)
    tasks.append(asyncio.create_task(bench.request(there := Reader(), through=middleware)))
    await asyncio.wait(tasks)

    assert (_count_pieces(*gone), there.body) == (written, bench.stored)
    assert bench.responses.unread_bytes == 0


async def test_the_openapi_document_unread_on_many_connections_leaves_the_whole_reserve_to_results() -> None:
    responses, connections_max = UnreadResponses(bytes_max=SIZE), 2 * HttpLimits().peer_connections_max
    endpoint = request_response(OpenApiEndpoint(lambda: {"x": "x" * SIZE}).__call__)
    middleware = LargeResponseMiddleware(endpoint, responses=responses)
    readers = [Reader(reads=1) for _ in range(connections_max)]
    scope: Scope = {"type": "http", "method": "GET", "path": "/openapi.json", "headers": [], "client": ("192.0.2.1", 1)}
    async with asyncio.TaskGroup() as group:
        for reader in readers:
            group.create_task(middleware({**scope, "state": {}}, _receive, reader.send))
        for reader in readers:
            await _wait(reader)
        unread_bytes = responses.unread_bytes
        for reader in readers:
            reader.resume.set()
    assert ({reader.status for reader in readers}, unread_bytes, responses.unread_bytes) == ({200}, 0, 0)
    assert {len(reader.body) > SIZE for reader in readers} == {True}
    assert max(len(message.get("body", b"")) for reader in readers for message in reader.sent) == PIECE_BYTES


def test_every_other_file_that_needs_no_key_is_smaller_than_a_piece() -> None:
    sizes = {name: len(asset.content) for name, asset in ASSETS.items()} | {"llms.txt": len(LLMS_TEXT)}
    assert {name for name, size in sizes.items() if size > PIECE_BYTES} == set()


def test_small_responses_and_responses_after_their_end_reserve_nothing() -> None:
    responses = UnreadResponses(principal_bytes_max=SIZE)
    memory = responses.open_response({})
    memory.reserve(ALICE, LARGE_RESPONSE_BYTES - 1)
    assert responses.unread_bytes == 0
    memory.reserve(ALICE, SIZE)
    memory.release()
    memory.release()
    memory.reserve(ALICE, SIZE)
    assert responses.unread_bytes == 0


def test_principals_that_read_nothing_leave_one_result_to_each_that_holds_little_and_nothing_to_addresses() -> None:
    responses, result = UnreadResponses(), GUARANTEED_BYTES
    for name in ("alice", "bob"):
        responses.reserve_bytes(name, PRINCIPAL_UNREAD_BYTES_MAX)

    responses.reserve_bytes("carol", result - 1)
    responses.reserve_bytes("carol", 1)
    for reader, size in (("carol", 1), ("dave", result + 1), (f"{ADDRESS_READER_PREFIX}192.0.2.1", 1)):
        with pytest.raises(Unavailable):
            responses.reserve_bytes(reader, size)
    for name in ("dave", "erin", "frank"):
        responses.reserve_bytes(name, result)
    with pytest.raises(Unavailable):
        responses.reserve_bytes("grace", 1)
    assert responses.unread_bytes == UNREAD_BYTES_MAX + RESERVED_BYTES


async def test_in_a_turn_of_the_event_loop_few_pieces_of_all_responses_are_written_and_principals_take_turns() -> None:
    bench = Bench(UnreadResponses())
    middleware = LargeResponseMiddleware(bench.respond, responses=bench.responses)
    greedy, quiet = [Reader() for _ in range(50)], Reader()
    tasks = [asyncio.create_task(bench.request(reader, through=middleware)) for reader in greedy]
    tasks.append(asyncio.create_task(bench.request(quiet, BOB, through=middleware)))
    pieces_when_quiet_was_done = 0
    while not all(task.done() for task in tasks):
        before = _count_pieces(*greedy, quiet)
        await asyncio.sleep(0)
        assert _count_pieces(*greedy, quiet) - before <= PIECES_IN_TURN
        if not tasks[-1].done():
            pieces_when_quiet_was_done = _count_pieces(*greedy)

    assert {reader.body == bench.stored for reader in (*greedy, quiet)} == {True}
    assert pieces_when_quiet_was_done <= 2 * PIECES_IN_TURN * (SIZE // PIECE_BYTES)


def _count_pieces(*readers: Reader) -> int:
    return sum(bool(message.get("body")) for reader in readers for message in reader.sent)
