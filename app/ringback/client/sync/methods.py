"""The base class of the generated groups of methods: the asynchronous client, and the thread that runs it."""

from ringback.client.client import RingbackClient
from ringback.client.sync.loop_thread import LoopThread


class SyncMethods:
    def __init__(self, client: RingbackClient, loop_thread: LoopThread) -> None:
        self._client = client
        self._loop_thread = loop_thread
        self._is_closed = False
