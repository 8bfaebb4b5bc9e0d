"""The composition root: makes every part and hands each what it needs. Nothing else knows how the parts are made.

settings ──▶ key ring ──▶ store ──▶ recorder ──▶ services ──▶ api
                            │          │
                        upstreams ──▶ runner ─┐
                         sender ──▶ dispatcher ├──▶ supervisor
                                     janitor ─┘

world        what is taken from outside: clock, chance, egress, a wrap around the store
policies     settings, as the values that the parts take
keys         the key ring, and whether it opens what is stored
parts        what everybody shares
services     the use cases
workers      what runs behind them
doors        who comes in, and where
application  all of it, opened and closed
"""

from ringback.bootstrap.application import Application, open_api_keys, open_application, open_shared_store
from ringback.bootstrap.environment import Environment, ReadConfigs
from ringback.bootstrap.key_ring import accept_lost_keys, accept_restore

__all__ = [
    "Application",
    "Environment",
    "ReadConfigs",
    "accept_lost_keys",
    "accept_restore",
    "open_api_keys",
    "open_application",
    "open_shared_store",
]
