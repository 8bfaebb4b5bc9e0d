"""RingbackClient without `await`, for scripts and notebooks.

    SyncRingbackClient.start_call(…) ──▶ LoopThread: an event loop in a thread ──▶ RingbackClient.start_call(…)
                     result, error   ◀──

    client        SyncRingbackClient: the constructor and the end
    loop_thread   the thread that runs the asynchronous client
    event_stream  EventStream without `await`

The other modules have the methods. `scripts/sync_client` generates them from RingbackClient's: the same names, arguments,
values and docstrings. Change the asynchronous method, and run the script.
"""

from ringback.client.sync.client import SyncRingbackClient
from ringback.client.sync.event_stream import SyncEventStream

__all__ = ["SyncEventStream", "SyncRingbackClient"]
