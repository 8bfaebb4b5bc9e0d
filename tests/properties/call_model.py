"""A call as `test_call_in_store` expects it in the store: the rules in plain words, without a store."""

from dataclasses import dataclass, field
from typing import Final

from ringback.domain.call import MRTR_DRIVER, Handle
from ringback.domain.call_completion import RUNS_MAX

ROUND: Final = Handle(driver=MRTR_DRIVER, data={"request_state": "s", "round": 1})


@dataclass(slots=True)
class CallModel:
    phase: str = "queued"
    holder: str | None = None
    """Whose lease it is; None without a lease."""
    lease_ends: float = 0.0
    deadline: float = 0.0
    dispatched: bool = False
    unsent: bool = False
    """The lease has marked it as dispatched, and its holder has not sent it yet."""
    handle: Handle | None = None
    runs: int = 0
    rerun: bool = False
    input_requests: dict[str, str] = field(default_factory=dict[str, str])
    answers: set[str] = field(default_factory=set[str])
    rounds: int = 0
    cancel: bool = False
    outcome: str | None = None

    @property
    def status(self) -> str:
        if self.outcome is None:
            return "input_required" if self.input_requests else "working"
        return {"result": "completed", "cancelled": "cancelled"}.get(self.outcome, "failed")

    def end(self, outcome: str) -> None:
        self.phase, self.holder, self.handle, self.outcome, self.unsent = "ended", None, None, outcome, False
        self.input_requests, self.answers = {}, set()

    @property
    def leaves_no_handle(self) -> bool:
        return not self.dispatched or (self.handle is ROUND and self.phase in {"queued", "parked"})

    def request_input(self, wanted: set[str]) -> None:
        self.input_requests = {key: name for key, name in self.input_requests.items() if name in wanted}
        if new := sorted(wanted - set(self.input_requests.values()) - self.answers):
            self.rounds += 1
            self.input_requests |= {f"r{self.rounds}.{index}": name for index, name in enumerate(new, start=1)}

    @property
    def runs_again(self) -> bool:
        """Whether its next runner sends it, or its last round, again."""
        return self.dispatched and self.handle in (None, ROUND) and self.rerun and not self.cancel

    def is_lost(self, *, is_handed_back: bool) -> bool:
        """Whether its tool may have run and is not run again."""
        if self.runs_again:
            return self.runs >= RUNS_MAX and not is_handed_back
        return self.dispatched and not self.handle

    def is_unattended(self, *, is_handed_back: bool) -> None:
        """Its runner is gone: it died, or handed the call back."""
        self.unsent = False
        if not self.dispatched and self.cancel:
            self.end("cancelled")
        elif self.is_lost(is_handed_back=is_handed_back):
            self.end("unknown")
        else:
            self.is_queued_again(is_handed_back=is_handed_back)

    def is_queued_again(self, *, is_handed_back: bool) -> None:
        if self.runs_again and self.handle:
            self.runs += not is_handed_back
        elif self.dispatched and not self.handle:
            self.dispatched, self.input_requests, self.answers = False, {}, set()
        self.phase, self.holder = "queued", None
