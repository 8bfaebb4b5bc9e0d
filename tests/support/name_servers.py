"""A name server on loopback, over real UDP, with the test's answers.

async with name_server({"healthy.test": Records("127.0.0.1"), "hung.test": HANG}) as server:
    resolver = AresResolver([server.address])
"""

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from ipaddress import ip_address
from typing import Final, cast

WAIT_SECONDS: Final = 60
"""Only a broken test waits that long."""
_A: Final = 1
_CNAME: Final = 5
_AAAA: Final = 28
_HEADER: Final = struct.Struct("!6H")
_RECORD: Final = struct.Struct("!HHIH")
_POINTER_TO_QUESTION: Final = b"\xc0\x0c"


class Behaviour(Enum):
    """Behaviours of a name server other than records."""

    HANG = -1
    MALFORMED = -2
    SERVER_FAILURE = 2
    NO_SUCH_NAME = 3
    REFUSED = 5


HANG_BEHAVIOUR: Final = Behaviour.HANG


class Records:
    """Addresses of both families in one answer; a CNAME first if there is an alias."""

    def __init__(
        self, *addresses: str, ttl_seconds: int = 60, alias: str | None = None, truncated: bool = False
    ) -> None:
        self.addresses = [ip_address(address) for address in addresses]
        self.ttl_seconds = ttl_seconds
        self.alias = alias
        self.truncated = truncated


ScriptedRecords = Records | Behaviour


class NameServer(asyncio.DatagramProtocol):
    def __init__(self, names: Mapping[str, ScriptedRecords], *, others: ScriptedRecords) -> None:
        self.names = dict(names)
        self.others = others
        """The answer for every name that is not in `names`."""
        self.queries: Counter[str] = Counter()
        """Received queries by name, of both families, with retransmissions."""
        self._transport: asyncio.DatagramTransport | None = None
        self._moved = asyncio.Event()

    @property
    def address(self) -> str:
        """`127.0.0.1:port`, as a resolver takes it."""
        assert self._transport is not None
        host, port = self._transport.get_extra_info("sockname")
        return f"{host}:{port}"

    async def wait_for_query(self, *names: str) -> None:
        """Wait until each name has been queried."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not all(self.queries[name] for name in names):
                self._moved.clear()
                await self._moved.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        name, record_type, question = _parse_question(data)
        self.queries[name] += 1
        self._moved.set()
        scripted = self.names.get(name, self.others)
        if scripted is HANG_BEHAVIOUR or self._transport is None:
            return
        self._transport.sendto(_encode_response(data[:2], question, record_type, scripted), addr)


def _parse_question(query: bytes) -> tuple[str, int, bytes]:
    labels: list[str] = []
    place = _HEADER.size
    while length := query[place]:
        labels.append(query[place + 1 : place + 1 + length].decode("ascii"))
        place += 1 + length
    (record_type,) = struct.unpack_from("!H", query, place + 1)
    return ".".join(labels).lower(), record_type, query[_HEADER.size : place + 5]


def _encode_response(query_id: bytes, question: bytes, record_type: int, scripted: ScriptedRecords) -> bytes:
    if scripted is Behaviour.MALFORMED:
        return query_id + b"\x81\x80\x00\x01\x00\x07" + bytes(4) + question + b"\xc0\xff\x00"
    records: list[bytes] = []
    code, flags = 0, 0x8180
    if isinstance(scripted, Behaviour):
        code = scripted.value
    else:
        records = _encode_records(scripted, record_type)
        flags |= 0x0200 if scripted.truncated else 0
    (number,) = struct.unpack("!H", query_id)
    return _HEADER.pack(number, flags | code, 1, len(records), 0, 0) + question + b"".join(records)


def _encode_records(scripted: Records, record_type: int) -> list[bytes]:
    owner, records = _POINTER_TO_QUESTION, list[bytes]()
    if scripted.alias is not None:
        target = _wire_name(scripted.alias)
        records.append(owner + _RECORD.pack(_CNAME, 1, scripted.ttl_seconds, len(target)) + target)
        owner = target
    for address in scripted.addresses:
        if record_type == (_A if address.version == 4 else _AAAA):
            packed = address.packed
            records.append(owner + _RECORD.pack(record_type, 1, scripted.ttl_seconds, len(packed)) + packed)
    return records


def _wire_name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode("ascii") for label in name.split(".")) + b"\0"


@asynccontextmanager
async def name_server(
    names: Mapping[str, ScriptedRecords], *, others: ScriptedRecords = Behaviour.NO_SUCH_NAME
) -> AsyncGenerator[NameServer]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: NameServer(names, others=others), local_addr=("127.0.0.1", 0)
    )
    try:
        yield server
    finally:
        transport.close()
