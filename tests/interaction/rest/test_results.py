"""Range requests of results."""

import httpx
import pytest

from tests.support.service import CALL_BODY, RESULT, ServiceUnderTest

pytestmark = pytest.mark.usefixtures("shared_service")

SIZE = len(RESULT)


@pytest.fixture
async def path(service: ServiceUnderTest, alice: httpx.AsyncClient) -> str:
    """The path of a stored result."""
    call_id = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    await service.finish_call(call_id)
    return f"/v1/calls/{call_id}/result"


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=0-9", 0, 9),
        ("bytes=10-", 10, SIZE - 1),
        ("bytes=-5", SIZE - 5, SIZE - 1),
        ("bytes=-100000", 0, SIZE - 1),
        ("bytes=3-100000", 3, SIZE - 1),
        ("Bytes= 2-4 ", 2, 4),
    ],
)
async def test_a_range_is_answered_with_the_part(
    alice: httpx.AsyncClient, path: str, asked: str, first: int, last: int
) -> None:
    answer = await alice.get(path, headers={"Range": asked})

    assert (answer.status_code, answer.content) == (206, RESULT[first : last + 1])
    assert answer.headers["content-range"] == f"bytes {first}-{last}/{SIZE}"
    assert answer.headers["content-length"] == str(last - first + 1)
    assert answer.headers["etag"] == (await alice.get(path)).headers["etag"]


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "bytes=",
        "bytes=-",
        "bytes=5-2",
        "bytes=0-1,3-4",
        "items=0-1",
        "bytes=a-b",
        "bytes=0x1-2",
        "0-1",
        "bytes=\u0661-\u0662",
    ],
)
async def test_a_range_that_is_not_one_byte_range_gets_the_whole_result(
    alice: httpx.AsyncClient, path: str, asked: str
) -> None:
    answer = await alice.get(path, headers={b"Range": asked.encode()})

    assert (answer.status_code, answer.content) == (200, RESULT)
    assert answer.headers["accept-ranges"] == "bytes"


@pytest.mark.parametrize("asked", [f"bytes={SIZE}-", "bytes=100000-100001", "bytes=-0"])
async def test_a_range_without_a_byte_is_refused_with_the_size(alice: httpx.AsyncClient, path: str, asked: str) -> None:
    answer = await alice.get(path, headers={"Range": asked})

    assert (answer.status_code, answer.json()["type"]) == (416, "/problems/range-not-satisfiable")
    assert answer.headers["content-range"] == f"bytes */{SIZE}"


@pytest.mark.parametrize(
    ("if_range", "status"),
    [("{etag}", 206), ('"other"', 200), ("W/{etag}", 200), ("Fri, 20 Nov 2026 17:00:00 GMT", 200)],
)
async def test_a_part_of_another_result_is_sent_whole(
    alice: httpx.AsyncClient, path: str, if_range: str, status: int
) -> None:
    etag = (await alice.get(path)).headers["etag"]
    headers = {"Range": "bytes=5-", "If-Range": if_range.format(etag=etag)}

    answer = await alice.get(path, headers=headers)

    assert (answer.status_code, answer.content) == (status, RESULT[5:] if status == 206 else RESULT)


async def test_a_result_that_the_client_has_is_not_sent_in_part_either(alice: httpx.AsyncClient, path: str) -> None:
    etag = (await alice.get(path)).headers["etag"]

    answer = await alice.get(path, headers={"If-None-Match": etag, "Range": "bytes=0-1"})

    assert (answer.status_code, answer.content) == (304, b"")


async def test_a_result_can_be_read_in_part(alice: httpx.AsyncClient, path: str) -> None:
    whole = await alice.get(path)

    looked = await alice.head(path, headers={"Range": "bytes=0-1"})
    known = await alice.head(path, headers={"If-None-Match": whole.headers["etag"]})

    assert (looked.status_code, looked.content, known.status_code) == (200, b"", 304)
    for name in ("etag", "content-length", "content-type", "accept-ranges"):
        assert looked.headers[name] == whole.headers[name]


async def test_only_the_client_itself_may_keep_a_result_and_asks_each_time(alice: httpx.AsyncClient, path: str) -> None:
    whole = await alice.get(path)

    known = await alice.get(path, headers={"If-None-Match": whole.headers["etag"]})

    assert (whole.status_code, known.status_code) == (200, 304)
    assert {each.headers.get("cache-control") for each in (whole, known)} == {"private, no-cache"}
