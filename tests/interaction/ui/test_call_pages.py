"""The list of calls in the dashboard."""

from tests.support.service import CALL_BODY, ServiceUnderTest
from tests.support.viewer_browser import sign_in


async def test_the_list_shows_the_calls_of_the_viewer_and_none_of_others(service: ServiceUnderTest) -> None:
    alice, bob = await service.create_client("alice"), await service.create_client("bob")
    own = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    foreign = (await bob.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]

    page = (await (await sign_in(service, "alice")).open("/calls")).text

    assert own in page
    assert foreign not in page
