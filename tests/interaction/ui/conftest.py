"""A service with a dashboard."""

from tests.support import service_fixtures

service = service_fixtures.service
own_service = service_fixtures.own_service
shared_service = service_fixtures.shared_service
