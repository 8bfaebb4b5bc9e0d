"""Whether the service is open for work: asked before anything is started, and watched by everything that waits."""

import asyncio

from ringback.domain.errors import ShuttingDown


class Lifecycle:
    def __init__(self) -> None:
        self.stopping = asyncio.Event()

    def stop(self) -> None:
        self.stopping.set()

    def require_open(self) -> None:
        if self.stopping.is_set():
            raise ShuttingDown("The service is shutting down. Nothing was started; try again in a few seconds.")
