"""SyncRingbackClient: RingbackClient without `await`."""

from typing import Self

import httpx

from ringback.client.client import REQUEST_TIMEOUT_SECONDS, RingbackClient
from ringback.client.http_transport import ClientClock
from ringback.client.sync.call_reads import SyncCallReadMethods
from ringback.client.sync.calls import SyncCallMethods
from ringback.client.sync.erasures import SyncErasureMethods
from ringback.client.sync.events import SyncEventMethods
from ringback.client.sync.insights import SyncInsightMethods
from ringback.client.sync.keys import SyncKeyMethods
from ringback.client.sync.loop_thread import LoopThread
from ringback.client.sync.operations import SyncOperationMethods
from ringback.client.sync.portal_links import SyncPortalLinkMethods
from ringback.client.sync.results import SyncResultMethods
from ringback.client.sync.upstreams import SyncUpstreamMethods
from ringback.client.sync.webhooks import SyncWebhookMethods


class SyncRingbackClient(
    SyncCallMethods,
    SyncCallReadMethods,
    SyncWebhookMethods,
    SyncEventMethods,
    SyncResultMethods,
    SyncUpstreamMethods,
    SyncInsightMethods,
    SyncErasureMethods,
    SyncKeyMethods,
    SyncPortalLinkMethods,
    SyncOperationMethods,
):
    """A typed client of one Ringback for scripts and notebooks: every method of `RingbackClient`, without `await`.

        with SyncRingbackClient("http://127.0.0.1:8090", api_key="rbk_…") as ringback:
            started = ringback.start_call("git", "git_log", {"repo_path": "."})
            print(ringback.wait(started.call.id).status)

    It runs a `RingbackClient` in a thread of its own, so it also works where an event loop already runs, as in a notebook.
    Several threads may use one client. Lists and events are iterators. An interrupt (Ctrl-C) ends the request; a call that was
    started continues. `on_truncated` is called in the client's thread.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
        clock: ClientClock | None = None,
        principal: str | None = None,
    ) -> None:
        client = RingbackClient(
            base_url,
            api_key=api_key,
            transport=transport,
            timeout_seconds=timeout_seconds,
            clock=clock,
            principal=principal,
        )
        super().__init__(client, LoopThread())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            try:
                self._loop_thread.run(self._client.aclose())
            finally:
                self._loop_thread.close()
