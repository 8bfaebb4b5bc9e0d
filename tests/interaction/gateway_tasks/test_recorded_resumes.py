"""A call shows by which interfaces its client came back for it."""

from ringback.domain.call_resumes import ResumeSurface
from tests.interaction.gateway_tasks.conftest import TasksHarness
from tests.interaction.gateway_tasks.test_modern_tasks import wait_for_status
from tests.support.mcp_wire import ModernClient


async def test_every_interface_by_which_a_client_returns_is_recorded_once_the_call_has_ended(
    harness: TasksHarness, modern: ModernClient
) -> None:
    services = harness.ringback.app.services
    task_id, task = await harness.start_task()
    await modern.request("tasks/get", {"taskId": task_id})
    headers = {"Authorization": f"Bearer {await harness.get_api_key('alice')}"}
    running = (await harness.http.get(f"{harness.url}/v1/calls/{task_id}/history", headers=headers)).json()
    task.complete_task("done")

    await wait_for_status(modern, task_id, "completed")
    await modern.request("resources/read", {"uri": f"ringback://calls/{task_id}"})
    await modern.request("tools/call", {"name": "ringback_get_call", "arguments": {"call_id": task_id}})
    await harness.http.get(f"{harness.url}/v1/calls/{task_id}/result", headers=headers)
    await services.call_resumes.write_pending()

    history = (await harness.http.get(f"{harness.url}/v1/calls/{task_id}/history", headers=headers)).json()
    assert running["resumes"] == []
    assert {resume["surface"] for resume in history["resumes"]} == set(ResumeSurface) - {ResumeSurface.REST_RESUME}
    assert history["resume_count"] >= len(history["resumes"])
    assert [event["name"] for event in history["events"]][-1] == "call.finished"
