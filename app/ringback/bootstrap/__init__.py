"""The composition root: builds every component and passes it its dependencies. No other package constructs them.

settings ──▶ key ring ──▶ store ──▶ recorder ──▶ services ──▶ api
                            │          │
                        upstreams ──▶ runner ─┐
                         sender ──▶ dispatcher ├──▶ supervisor
                                     janitor ─┘

environment    clock, randomness, resolvers, egress and a store wrapper, replaceable by tests and embedders
configuration  converts the settings to the values that components take
key_ring       loads the key ring and checks that it decrypts the stored data
quota_configuration  the quotas of single principals and API keys
measured_store  times the commits of the store
egress         how callbacks leave: the egress proxy and client certificates
components     the objects that services and workers share
services       the use cases
children_folder  where this process records the upstreams' child processes
workers        the background workers of this node's roles
entrypoints    authentication, REST and the MCP endpoints
application    opens and closes a whole service
backup         makes a backup while the service runs; backup_manifest says what is in it
restore        puts a backup into the place of a database
"""

from ringback.bootstrap.application import Application, open_api_keys, open_application, open_shared_store
from ringback.bootstrap.configuration import (
    build_protected_resource,
    load_authorities,
    names_itself_in_callbacks,
    require_callback_url,
    require_complete_roles,
)
from ringback.bootstrap.environment import Environment, ReadConfigs
from ringback.bootstrap.key_ring import accept_lost_keys, accept_restore, migrate_database

__all__ = [
    "Application",
    "Environment",
    "ReadConfigs",
    "accept_lost_keys",
    "accept_restore",
    "build_protected_resource",
    "load_authorities",
    "migrate_database",
    "names_itself_in_callbacks",
    "open_api_keys",
    "open_application",
    "open_shared_store",
    "require_callback_url",
    "require_complete_roles",
]
