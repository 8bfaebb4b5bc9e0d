"""Finds the call that an elicitation of a legacy session belongs to.

An elicitation names no request. It belongs to a call only if that is certain:

    its `_meta` names a related task       the call that runs as this task
    it came on the stream of a request     the call of this request; over HTTP, where the SDK's streams carry contextvars
    it came outside any such stream        the call of the only open request or task of the session

On a pipe every message comes outside. The last rule fails while another client session has an abandoned request: the abandoned
tool may still run and ask, until the upstream responds to its request after all. Servers on the SDK for Python respond to a
cancelled request, others do not; nothing else proves that a tool has ended, so no time-out ends the doubt. Every other
elicitation is refused with a JSON-RPC error that says why. An answer with an `action` would claim that a user has seen the
question.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, RequestId

from ringback.domain.ids import CallId
from ringback.domain.inputs import ACCEPT_INPUT_ADVICE
from ringback.domain.principal import Principal
from ringback.protocol import tasks
from ringback.protocol.errors import InvalidUpstreamResponse, ResponseLost, UpstreamError
from ringback.upstreams.session_ports import OnElicitation

ASKING_METHODS: Final = frozenset({"tools/call", "resources/read", "prompts/get"})
"""Requests during which an upstream may ask. A request of a task does not count, because its task does."""
TASKS_MAX: Final = 1024
"""Tasks remembered for one session; four times the calls of an HTTP upstream. A task is forgotten when it ends."""
ABANDONED_REQUESTS_MAX: Final = 1024
"""Abandoned requests of one session that may still get a response; with more, the oldest never counts as ended."""
_TASK_METHODS: Final = frozenset({"tasks/get", "tasks/result", "tasks/cancel"})
_FINAL_TASK_STATUSES: Final = frozenset({"completed", "failed", "cancelled"})
_UNCERTAIN: Final = (
    "The question was not asked: Ringback cannot tell which of the calls in this session asks. {advice}, or let the operator "
    'of Ringback set "isolation": "call" for this server.'
)
_NO_INPUT_ACCEPTED: Final = (
    f"The question was not asked: the call that asks does not accept input, or has ended. {ACCEPT_INPUT_ADVICE}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOwner:
    """Who may be asked instead of each other: one session of one client."""

    principal: Principal
    client_session_id: str | None
    call_id: CallId | None = field(default=None, compare=False)
    """The call of the request, to name it to its principal."""


class ElicitationReceiver:
    """Receives the elicitations of one call. A closed receiver leaves its open elicitations unanswered."""

    def __init__(self, on_elicitation: OnElicitation) -> None:
        self._on_elicitation = on_elicitation
        self._answers: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self.is_open = True

    @property
    def is_waiting(self) -> bool:
        """Whether a question has no answer yet."""
        return any(not answer.done() for answer in self._answers.values())

    async def wait_for_answer(self, request_id: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Pass the elicitation on and wait for its answer; raises `MCPError` if it is refused or the receiver is closed."""
        answer = self._answers[request_id] = asyncio.get_running_loop().create_future()
        try:
            self._on_elicitation(request_id, request)
            return await answer
        finally:
            self._answers.pop(request_id, None)

    def withdraw(self, request_id: str) -> None:
        if self.is_open:
            self._on_elicitation(request_id, None)

    def answer(self, request_id: str, answer: Mapping[str, Any]) -> bool:
        """False if no such elicitation is open."""
        if (pending := self._answers.get(request_id)) is None or pending.done():
            return False
        pending.set_result(answer)
        return True

    def close(self) -> None:
        """Leave open elicitations unanswered: another process may answer them, or the upstream withdraws them."""
        self.is_open = False
        for pending in self._answers.values():
            if not pending.done():
                pending.set_exception(MCPError(CONNECTION_CLOSED, "The call has left this connection."))


@dataclass(slots=True, eq=False)
class _Source:
    """A request or a task during which the upstream may ask."""

    receiver: ElicitationReceiver | None
    """None if the call does not accept input."""
    owner: CallOwner | None
    """None if the request belongs to no call."""
    request_id: RequestId | None = None
    """None until the request is sent."""
    has_response: bool = False


_RECEIVER: Final[ContextVar[ElicitationReceiver | None]] = ContextVar("ringback_elicitation_receiver", default=None)
"""The receiver of the requests made in this context."""
_OWNER: Final[ContextVar[CallOwner | None]] = ContextVar("ringback_call_owner", default=None)
"""The owner of the requests made in this context."""
_SOURCE: Final[ContextVar[_Source | None]] = ContextVar("ringback_elicitation_source", default=None)
"""The request made in this context. Over HTTP, the messages on its stream arrive in the same context."""


@contextmanager
def receive_elicitations(on_elicitation: OnElicitation) -> Generator[None]:
    """Receive the elicitations of the requests made in this block."""
    receiver = ElicitationReceiver(on_elicitation)
    token = _RECEIVER.set(receiver)
    try:
        yield
    finally:
        receiver.close()
        _RECEIVER.reset(token)


@contextmanager
def own_requests(owner: CallOwner | None) -> Generator[None]:
    """Make the requests of this block on behalf of this owner."""
    token = _OWNER.set(owner)
    try:
        yield
    finally:
        _OWNER.reset(token)


def get_receiver() -> ElicitationReceiver | None:
    return _RECEIVER.get()


def leave_call_context() -> None:
    """Forget the call in whose context this task was started, for a session that outlives the call."""
    for variable in (_RECEIVER, _OWNER, _SOURCE):
        variable.set(None)


class ElicitationRouter:
    """The open requests and tasks of one session."""

    def __init__(self) -> None:
        self._open_requests: set[_Source] = set()
        self._sent: dict[RequestId, _Source] = {}
        """Requests that are tracked, by their ids."""
        self._tasks: dict[str, _Source] = {}
        self._abandoned: dict[RequestId, CallOwner | None] = {}
        """The owners of abandoned requests that the upstream has not responded to."""
        self._lost_owners: set[CallOwner | None] = set()
        """Owners of what can get no response any more; two suffice to make every owner uncertain."""

    @property
    def abandoned_count(self) -> int:
        """The requests whose tools may still run."""
        return len(self._abandoned) + len(self._lost_owners)

    @contextmanager
    def track_request(self, method: str, params: Mapping[str, Any]) -> Generator[Callable[[Mapping[str, Any]], None]]:
        """Track a request until the block ends. Yields a callback for its result."""
        source = _Source(_RECEIVER.get(), _OWNER.get())
        task_id = params.get("taskId") if method in _TASK_METHODS else None
        token = _SOURCE.set(source)
        self._begin_request(method, task_id, source)
        try:
            yield lambda result: self._note_result(method, task_id, source, result)
        except (asyncio.CancelledError, ResponseLost, InvalidUpstreamResponse):
            if method in ASKING_METHODS:
                self._abandon(source)
            raise
        except UpstreamError:
            self._tasks.pop(task_id or "", None)  # the upstream does not know the task, or has reported its end
            raise
        finally:
            self._open_requests.discard(source)
            if source.request_id is not None:
                self._sent.pop(source.request_id, None)
            _SOURCE.reset(token)

    def note_request_id(self, request_id: RequestId) -> None:
        """The request that is sent in this context has this id."""
        if (source := _SOURCE.get()) is not None:
            source.request_id = coerce_request_id(request_id)
            self._sent[source.request_id] = source

    def note_response(self, request_id: RequestId) -> None:
        """The upstream responds to the request, perhaps after it was abandoned: its tool has ended."""
        key = coerce_request_id(request_id)
        self._abandoned.pop(key, None)
        if (source := self._sent.get(key)) is not None:
            source.has_response = True

    def find_receiver(self, params: Mapping[str, Any]) -> ElicitationReceiver:
        """Raises `MCPError` if the elicitation is refused."""
        match params:
            case {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": str() as task_id}}}:
                source = self._tasks.get(task_id)
            case _:
                source = _SOURCE.get() or self._find_only_source()
        if source is None:
            raise MCPError(INVALID_REQUEST, _UNCERTAIN.format(advice=self._advise_asker()))
        if source.receiver is None or not source.receiver.is_open:
            raise MCPError(INVALID_REQUEST, _NO_INPUT_ACCEPTED)
        return source.receiver

    def _find_only_source(self) -> _Source | None:
        sources = [*self._open_requests, *self._tasks.values()]
        if len(sources) != 1 or not self._lost_owners | set(self._abandoned.values()) <= {sources[0].owner}:
            return None
        return sources[0]

    def _advise_asker(self) -> str:
        """What to do first. A call that waits for an answer is named only if all calls that may ask are of one principal."""
        sources = [*self._open_requests, *self._tasks.values()]
        owners = {*self._lost_owners, *self._abandoned.values(), *(source.owner for source in sources)}
        waiting = [each.owner for each in sources if each.receiver is not None and each.receiver.is_waiting]
        call_id = next((owner.call_id for owner in waiting if owner is not None), None)
        if len({None if owner is None else owner.principal for owner in owners}) != 1 or call_id is None:
            return "Call the tool while no other call runs"
        return (
            f"{call_id} waits for an answer: answer it (ringback_answer_call, POST /v1/calls/{call_id}/input) or cancel it "
            f"(ringback_cancel_call, POST /v1/calls/{call_id}/cancel), and call the tool again"
        )

    def _begin_request(self, method: str, task_id: str | None, source: _Source) -> None:
        if method in ASKING_METHODS:
            self._open_requests.add(source)
        elif task_id is not None and (known := self._tasks.get(task_id)) is not None:
            known.receiver = source.receiver or known.receiver
        elif task_id is not None:
            self._remember_task(task_id, source)

    def _note_result(self, method: str, task_id: str | None, source: _Source, result: Mapping[str, Any]) -> None:
        match result:
            case {"task": {"taskId": str() as new_task_id}} | {
                "_meta": {tasks.DRAFT_TASK_META_KEY: {"taskId": str() as new_task_id}}
            } if method == "tools/call":
                self._remember_task(new_task_id, source)
            case {"status": status} if task_id is not None and method != "tasks/result":
                if isinstance(status, str) and status in _FINAL_TASK_STATUSES:
                    self._tasks.pop(task_id, None)
            case _ if task_id is not None:
                self._tasks.pop(task_id, None)
            case _:
                pass

    def _remember_task(self, task_id: str, source: _Source) -> None:
        self._tasks[task_id] = source
        if len(self._tasks) > TASKS_MAX:
            self._add_lost_owner(self._tasks.pop(next(iter(self._tasks))).owner)

    def _abandon(self, source: _Source) -> None:
        if source.has_response:
            return
        if source.request_id is None:
            self._add_lost_owner(source.owner)
            return
        self._abandoned[source.request_id] = source.owner
        if len(self._abandoned) > ABANDONED_REQUESTS_MAX:
            self._add_lost_owner(self._abandoned.pop(next(iter(self._abandoned))))

    def _add_lost_owner(self, owner: CallOwner | None) -> None:
        if len(self._lost_owners) < 2:  # noqa: PLR2004 - see the attribute
            self._lost_owners.add(owner)
