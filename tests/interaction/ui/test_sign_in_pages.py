"""Sign in to the dashboard with an API key."""

from tests.support.service import ServiceUnderTest


async def test_a_page_without_a_viewer_leads_to_the_sign_in_page_and_names_itself(service: ServiceUnderTest) -> None:
    browser = await service.create_anonymous_client()

    refused = await browser.get("/ui/calls?status=failed")

    assert refused.status_code == 303
    assert refused.headers["location"] == "/ui/sign-in?next=%2Fcalls%3Fstatus%3Dfailed"
