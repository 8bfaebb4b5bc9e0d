"""The composition root: builds every component and passes it its dependencies. No other package constructs them.

settings ──▶ key ring ──▶ store ──▶ recorder ──▶ services ──▶ api
                            │          │
                        upstreams ──▶ runner ─┐
                         sender ──▶ dispatcher ├──▶ supervisor
                                     janitor ─┘

environment    clock, randomness, resolvers, egress and a store wrapper, replaceable by tests and embedders
configuration  checks the settings, and converts them to values that the doctor needs too
policies       converts them to the limits and policies of components
quota_configuration  the quotas of single principals and API keys
measured_store  times the commits of the store
egress         how callbacks leave: the egress proxy and client certificates
components     the objects that services and workers share
service_parts  what the use cases are built from: of a service, or fakes of tests and simulations
services       builds the use cases from it, for all of them
children_folder  where this process records the upstreams' child processes
workers        the background workers of this node's roles
entrypoints    authentication, REST and the MCP endpoints
idle_stop      notices that a service has had nothing to do for a while
tracing        the tracer that `OTEL_` variables ask for; trace_export: its exports, with the SDK
application    opens and closes a whole service

Each name is imported with its first use: the service takes three seconds of CPU, commands such as `ringback doctor` need the
settings only, and a simulation builds the use cases without either.
"""

import typing

from ringback import lazy_names

if typing.TYPE_CHECKING:
    from ringback.bootstrap.application import Application, open_application
    from ringback.bootstrap.configuration import (
        build_protected_resource,
        load_authorities,
        names_itself_in_callbacks,
        require_callback_url,
        require_complete_roles,
    )
    from ringback.bootstrap.environment import Environment, ReadConfigs

__all__ = [
    "Application",
    "Environment",
    "ReadConfigs",
    "build_protected_resource",
    "load_authorities",
    "names_itself_in_callbacks",
    "open_application",
    "require_callback_url",
    "require_complete_roles",
]

_NAMES_BY_MODULE: typing.Final = {
    "ringback.bootstrap.application": "Application open_application",
    "ringback.bootstrap.configuration": (
        "build_protected_resource load_authorities names_itself_in_callbacks require_callback_url "
        "require_complete_roles"
    ),
    "ringback.bootstrap.environment": "Environment ReadConfigs",
}

if not typing.TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__ = lazy_names.import_on_first_use(__name__, _NAMES_BY_MODULE)
