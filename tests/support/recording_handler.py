"""A receiver whose handler records its callbacks."""

from ringback.receiver import Callback, Gap, ReceiverApp, Terminated
from ringback.receiver.verification import SecretSource
from tests.support.signed_posts import NOW, SECRET


class RecordingHandler:
    """A handler that records its arguments and fails a given number of times."""

    def __init__(self, *, failures: int = 0) -> None:
        self.failures = failures
        self.callbacks: list[Callback] = []
        self.notices: list[Gap | Terminated] = []

    async def handle_callback(self, callback: Callback) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the inbox is full")
        self.callbacks.append(callback)

    async def handle_notice(self, notice: Gap | Terminated) -> None:
        self.notices.append(notice)


def make_app(inbox: RecordingHandler, secrets: SecretSource = (SECRET,)) -> ReceiverApp:
    return ReceiverApp(secrets, on_callback=inbox.handle_callback, on_notice=inbox.handle_notice, clock=lambda: NOW)
