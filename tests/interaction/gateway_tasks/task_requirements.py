"""Every MUST and MUST NOT for servers about tasks, with its section, and the one of a disconnect.

    M…   ext-tasks, specification/2026-07-28/tasks.md
    L…   MCP 2025-11-25, basic/utilities/tasks
    C…   MCP 2026-07-28, basic/patterns/cancellation
    P…   MCP 2025-11-25, basic/utilities/progress

Requirements for clients are not listed: the drivers of the runner implement that side. A test that shows a requirement has the
marker `@pytest.mark.must("M01")`. `tasks` and `legacy_tasks` list the differences from what is no MUST.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TaskRequirement:
    id: str
    section: str
    sentence: str
    decision: str = ""
    """How Ringback understands a sentence that can be understood in more than one way, and why."""


MODERN_REQUIREMENTS: Final = (
    TaskRequirement(
        "M01", "Capability Negotiation", "No CreateTaskResult for a request that did not declare the extension."
    ),
    TaskRequirement(
        "M02",
        "Capability Negotiation",
        "Without the extension, -32021 for a request that cannot be served without a task.",
    ),
    TaskRequirement("M03", "Polymorphic Results", "A CreateTaskResult has resultType task."),
    TaskRequirement("M04", "Polymorphic Results", "No other result has resultType task."),
    TaskRequirement("M05", "Task Status", "failed is for JSON-RPC errors only."),
    TaskRequirement(
        "M06", "Task Creation", "A task is durable before its CreateTaskResult: tasks/get resolves from then on."
    ),
    TaskRequirement("M07", "Task Polling", "tasks/get of a working task is a task with status working."),
    TaskRequirement("M08", "Task Polling", "tasks/get of a task that wants input says so and has inputRequests."),
    TaskRequirement("M09", "Task Polling", "inputRequests holds all that is asked and not answered."),
    TaskRequirement("M10", "Task Polling", "tasks/get of a completed task has its result."),
    TaskRequirement("M11", "Task Polling", "tasks/get of a cancelled task says so."),
    TaskRequirement("M12", "Task Polling", "tasks/get of a failed task has its error."),
    TaskRequirement("M13", "Task Polling", "tasks/get has resultType complete."),
    TaskRequirement(
        "M14", "Task Update Requests", "A key is unique in the task's lifetime, and never used for a second request."
    ),
    TaskRequirement("M15", "Task Update Requests", "A key is not used again after its answer was delivered."),
    TaskRequirement("M16", "Task Update Requests", "tasks/update is acknowledged with an empty result."),
    TaskRequirement("M17", "Task Update Requests", "tasks/update has resultType complete."),
    TaskRequirement("M18", "Task Cancellation", "notifications/cancelled does not cancel a task."),
    TaskRequirement("M19", "Task Cancellation", "tasks/cancel is acknowledged with an empty result."),
    TaskRequirement("M20", "Task Cancellation", "tasks/cancel has resultType complete."),
    TaskRequirement(
        "M21", "Task Status Notifications", "Listening to tasks without the extension is -32021 with what is required."
    ),
    TaskRequirement(
        "M22", "Task Status Notifications", "No notifications/progress and /message for a task on a listen stream."
    ),
    TaskRequirement("M23", "Routing Headers", "Mcp-Name is the task's id (a client's duty, which we judge)."),
    TaskRequirement("M24", "Protocol Errors", "An unknown taskId is -32602 in tasks/get."),
    TaskRequirement("M25", "Protocol Errors", "tasks/get, update and cancel without the extension are -32021."),
    TaskRequirement("M26", "Task Execution Errors", "A failed task has the JSON-RPC error in error."),
    TaskRequirement("M27", "Task Execution Errors", "A result that is an error completes its task and is its result."),
    TaskRequirement(
        "M28", "Task Execution Errors", "A completed task has exactly what the request would have been answered."
    ),
    TaskRequirement("M29", "Security Considerations", "Task ids cannot be guessed."),
    TaskRequirement("M30", "Security Considerations", "Every request about a task is authorised."),
)

LEGACY_REQUIREMENTS: Final = (
    TaskRequirement("L01", "Capabilities", "The tasks capability is declared in the handshake."),
    TaskRequirement(
        "L02",
        "Tool-Level Negotiation",
        "A tool listed as required is -32601 without a task.",
    ),
    TaskRequirement(
        "L03",
        "Task Support and Handling",
        "Without the capability, a request is served as if it asked for no task.",
    ),
    TaskRequirement("L04", "Task ID Requirements", "Task ids are strings."),
    TaskRequirement("L05", "Task ID Requirements", "Task ids are made by the receiver."),
    TaskRequirement("L06", "Task ID Requirements", "Task ids are unique among all tasks of the receiver."),
    TaskRequirement("L07", "Task Status Lifecycle", "A task begins as working."),
    TaskRequirement("L08", "Task Status Lifecycle", "Only the listed transitions happen."),
    TaskRequirement("L09", "Task Status Lifecycle", "A terminal status never changes."),
    TaskRequirement("L10", "Input Required Status", "A request to the client for a task carries related-task."),
    TaskRequirement("L11", "TTL and Resource Management", "Every task has createdAt, in ISO 8601."),
    TaskRequirement("L12", "TTL and Resource Management", "Every task has lastUpdatedAt, in ISO 8601."),
    TaskRequirement("L13", "TTL and Resource Management", "tasks/get has the actual ttl."),
    TaskRequirement(
        "L14", "Result Retrieval", "A request that is accepted as a task is answered with a CreateTaskResult."
    ),
    TaskRequirement(
        "L15", "Result Retrieval", "tasks/result of a task that has ended is its result or its JSON-RPC error."
    ),
    TaskRequirement("L16", "Result Retrieval", "tasks/result blocks until the task has ended."),
    TaskRequirement("L17", "Result Retrieval", "tasks/result is exactly what the request would have been answered."),
    TaskRequirement(
        "L18", "Associating Task-Related Messages", "All messages about a task carry related-task in their _meta."
    ),
    TaskRequirement(
        "L19", "Associating Task-Related Messages", "An elicitation for a task carries the task's related-task."
    ),
    TaskRequirement(
        "L20",
        "Associating Task-Related Messages",
        "taskId says which task is meant; related-task in a request is ignored.",
    ),
    TaskRequirement("L21", "Task Listing", "A page that is not the last has nextCursor."),
    TaskRequirement("L22", "Task Listing", "What tasks/get finds, tasks/list lists."),
    TaskRequirement("L23", "Task Cancellation", "Cancelling a task that has ended is -32602."),
    TaskRequirement("L24", "Task Cancellation", "A task is cancelled before tasks/cancel is answered."),
    TaskRequirement("L25", "Task Cancellation", "A cancelled task stays cancelled, whatever its work still does."),
    TaskRequirement("L26", "Related Task Metadata", "The answer of tasks/result carries related-task."),
    TaskRequirement(
        "L27", "Protocol Errors", "An unknown taskId is -32602 in tasks/get, tasks/result and tasks/cancel."
    ),
    TaskRequirement("L28", "Protocol Errors", "An unknown cursor is -32602 in tasks/list."),
    TaskRequirement("L29", "Task Execution Errors", "tasks/result of a JSON-RPC error is that same error."),
    TaskRequirement(
        "L30", "Task Execution Errors", "tasks/result of a result is a result, also when that is an error."
    ),
    TaskRequirement("L31", "Task Isolation and Access Control", "Tasks are bound to who is authorised."),
    TaskRequirement("L32", "Task Isolation and Access Control", "Without authentication, task ids cannot be guessed."),
    TaskRequirement(
        "L33",
        "Task Isolation and Access Control",
        "tasks/get, result and cancel of another principal's task are refused.",
    ),
    TaskRequirement("L34", "Task Isolation and Access Control", "tasks/list lists only the caller's own tasks."),
)

CANCELLATION_REQUIREMENTS: Final = (
    TaskRequirement(
        "C01",
        "Transport-Specific Cancellation",
        "The server MUST treat a client disconnect as cancellation of that request.",
        decision="The request ends: its handler is cancelled, nothing more is sent, and no client counts as waiting. The call "
        "that it started goes on (`on_disconnect: keep`), as a task does: a closed stream does not show whether a user pressed "
        "Esc, a client waited five seconds, or a laptop was closed, and a cancelled call cannot be taken back. `on_disconnect: "
        "cancel`, for all, an upstream or a tool, cancels the call too.",
    ),
)

PROGRESS_REQUIREMENTS: Final = (
    TaskRequirement("P01", "Behavior Requirements", "Progress of a task has the token of the request that created it."),
    TaskRequirement("P02", "Progress Flow", "Progress increases with each notification."),
    TaskRequirement("P03", "Behavior Requirements", "Progress notifications stop when the task has ended."),
)

TASK_REQUIREMENTS: Final = (
    *MODERN_REQUIREMENTS,
    *LEGACY_REQUIREMENTS,
    *CANCELLATION_REQUIREMENTS,
    *PROGRESS_REQUIREMENTS,
)
