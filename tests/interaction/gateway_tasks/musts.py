"""Every MUST and MUST NOT of the two Tasks texts that binds a server, in our words, with the section it stands in.

    M…   ext-tasks, specification/2026-07-28/tasks.md
    L…   MCP 2025-11-25, basic/utilities/tasks

What binds clients is not here: Ringback's own client side has its drivers. A test shows a sentence by carrying
`@pytest.mark.must("M01")`. Where we differ in what is no MUST, or go beyond it, the modules that serve tasks say so.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Must:
    id: str
    section: str
    words: str


MODERN: Final = (
    Must("M01", "Capability Negotiation", "No CreateTaskResult for a request that did not declare the extension."),
    Must(
        "M02",
        "Capability Negotiation",
        "Without the extension, -32021 for a request that cannot be served without a task.",
    ),
    Must("M03", "Polymorphic Results", "A CreateTaskResult has resultType task."),
    Must("M04", "Polymorphic Results", "No other result has resultType task."),
    Must("M05", "Task Status", "failed is for JSON-RPC errors only."),
    Must("M06", "Task Creation", "A task is durable before its CreateTaskResult: tasks/get resolves from then on."),
    Must("M07", "Task Polling", "tasks/get of a working task is a task with status working."),
    Must("M08", "Task Polling", "tasks/get of a task that wants input says so and has inputRequests."),
    Must("M09", "Task Polling", "inputRequests holds all that is asked and not answered."),
    Must("M10", "Task Polling", "tasks/get of a completed task has its result."),
    Must("M11", "Task Polling", "tasks/get of a cancelled task says so."),
    Must("M12", "Task Polling", "tasks/get of a failed task has its error."),
    Must("M13", "Task Polling", "tasks/get has resultType complete."),
    Must("M14", "Task Update Requests", "A key is unique in the task's lifetime, and never used for a second request."),
    Must("M15", "Task Update Requests", "A key is not used again after its answer was delivered."),
    Must("M16", "Task Update Requests", "tasks/update is acknowledged with an empty result."),
    Must("M17", "Task Update Requests", "tasks/update has resultType complete."),
    Must("M18", "Task Cancellation", "notifications/cancelled does not cancel a task."),
    Must("M19", "Task Cancellation", "tasks/cancel is acknowledged with an empty result."),
    Must("M20", "Task Cancellation", "tasks/cancel has resultType complete."),
    Must(
        "M21", "Task Status Notifications", "Listening to tasks without the extension is -32021 with what is required."
    ),
    Must("M22", "Task Status Notifications", "No notifications/progress and /message for a task on a listen stream."),
    Must("M23", "Routing Headers", "Mcp-Name is the task's id (a client's duty, which we judge)."),
    Must("M24", "Protocol Errors", "An unknown taskId is -32602 in tasks/get."),
    Must("M25", "Protocol Errors", "tasks/get, update and cancel without the extension are -32021."),
    Must("M26", "Task Execution Errors", "A failed task has the JSON-RPC error in error."),
    Must("M27", "Task Execution Errors", "A result that is an error completes its task and is its result."),
    Must("M28", "Task Execution Errors", "A completed task has exactly what the request would have been answered."),
    Must("M29", "Security Considerations", "Task ids cannot be guessed."),
    Must("M30", "Security Considerations", "Every request about a task is authorised."),
)

LEGACY: Final = (
    Must("L01", "Capabilities", "The tasks capability is declared in the handshake."),
    Must(
        "L02",
        "Tool-Level Negotiation",
        "A tool listed as required is -32601 without a task.",
    ),
    Must(
        "L03",
        "Task Support and Handling",
        "Without the capability, a request is served as if it asked for no task.",
    ),
    Must("L04", "Task ID Requirements", "Task ids are strings."),
    Must("L05", "Task ID Requirements", "Task ids are made by the receiver."),
    Must("L06", "Task ID Requirements", "Task ids are unique among all tasks of the receiver."),
    Must("L07", "Task Status Lifecycle", "A task begins as working."),
    Must("L08", "Task Status Lifecycle", "Only the listed transitions happen."),
    Must("L09", "Task Status Lifecycle", "A terminal status never changes."),
    Must("L10", "Input Required Status", "A request to the client for a task carries related-task."),
    Must("L11", "TTL and Resource Management", "Every task has createdAt, in ISO 8601."),
    Must("L12", "TTL and Resource Management", "Every task has lastUpdatedAt, in ISO 8601."),
    Must("L13", "TTL and Resource Management", "tasks/get has the actual ttl."),
    Must("L14", "Result Retrieval", "A request that is accepted as a task is answered with a CreateTaskResult."),
    Must("L15", "Result Retrieval", "tasks/result of a task that has ended is its result or its JSON-RPC error."),
    Must("L16", "Result Retrieval", "tasks/result blocks until the task has ended."),
    Must("L17", "Result Retrieval", "tasks/result is exactly what the request would have been answered."),
    Must("L18", "Associating Task-Related Messages", "All messages about a task carry related-task in their _meta."),
    Must("L19", "Associating Task-Related Messages", "An elicitation for a task carries the task's related-task."),
    Must(
        "L20",
        "Associating Task-Related Messages",
        "taskId says which task is meant; related-task in a request is ignored.",
    ),
    Must("L21", "Task Listing", "A page that is not the last has nextCursor."),
    Must("L22", "Task Listing", "What tasks/get finds, tasks/list lists."),
    Must("L23", "Task Cancellation", "Cancelling a task that has ended is -32602."),
    Must("L24", "Task Cancellation", "A task is cancelled before tasks/cancel is answered."),
    Must("L25", "Task Cancellation", "A cancelled task stays cancelled, whatever its work still does."),
    Must("L26", "Related Task Metadata", "The answer of tasks/result carries related-task."),
    Must("L27", "Protocol Errors", "An unknown taskId is -32602 in tasks/get, tasks/result and tasks/cancel."),
    Must("L28", "Protocol Errors", "An unknown cursor is -32602 in tasks/list."),
    Must("L29", "Task Execution Errors", "tasks/result of a JSON-RPC error is that same error."),
    Must("L30", "Task Execution Errors", "tasks/result of a result is a result, also when that is an error."),
    Must("L31", "Task Isolation and Access Control", "Tasks are bound to who is authorised."),
    Must("L32", "Task Isolation and Access Control", "Where nobody is, task ids cannot be guessed."),
    Must(
        "L33", "Task Isolation and Access Control", "tasks/get, result and cancel of somebody else's task are refused."
    ),
    Must("L34", "Task Isolation and Access Control", "tasks/list lists nobody else's tasks."),
)

MUSTS: Final = (*MODERN, *LEGACY)
