"""The tasks of connections."""

import asyncio
from typing import Any, cast

from ringback.domain.principal import Principal
from ringback.upstreams.connection import UpstreamConnection
from ringback.upstreams.connection_tasks import ConnectionTasks
from ringback.upstreams.dispatch_records import enter_dispatch_record, get_dispatch_record, leave_dispatch_record
from ringback.upstreams.elicitation_router import CallOwner, get_receiver, own_requests, receive_elicitations
from ringback.upstreams.transports.open_response import UnawaitedResponses, get_open_response
from tests.support.limits import WAIT_SECONDS


async def test_a_connection_that_the_request_of_a_call_starts_knows_nothing_of_that_call() -> None:
    """Its questions and log messages outside requests would have gone to this call, and they may be of others."""
    found = asyncio.get_running_loop().create_future()

    class Connection:
        async def run(self) -> None:
            found.set_result((get_receiver(), get_dispatch_record(), get_open_response()))

    tasks, owner = ConnectionTasks(), CallOwner(principal=Principal("alice"), client_session_id=None)
    enter_dispatch_record(cast("Any", object()))
    with (
        receive_elicitations(lambda _name, _request: None),
        own_requests(owner),
        UnawaitedResponses().awaiting_response(),
    ):
        tasks.start_connection(cast("UpstreamConnection", Connection()))
    leave_dispatch_record()
    known = await asyncio.wait_for(found, WAIT_SECONDS)
    await tasks.aclose()

    assert known == (None, None, None)
