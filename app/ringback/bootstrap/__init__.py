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

from ringback.bootstrap.application import Application, open_application, open_shared_store, open_api_keys
from ringback.bootstrap.keys import accept_lost_keys, accept_restore
from ringback.bootstrap.world import ReadConfigs, Environment

__all__ = [
    "Application",
    "ReadConfigs",
    "Environment",
    "accept_lost_keys",
    "accept_restore",
    "open_application",
    "open_shared_store",
    "open_api_keys",
]
