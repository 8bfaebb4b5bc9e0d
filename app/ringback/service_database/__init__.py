"""A service's database without the service: for operators' commands, and for the start of the service.

shared_store    opens the store and the API keys while the service runs, or not
keyless_store   opens the store for work that decrypts nothing: migrations, and the acceptance of a restored file
key_ring        loads the key ring and checks that it decrypts the stored data
backup          makes a backup while the service runs, or not; backup_manifest says what is in it
restore         puts a backup into the place of a database

The package imports nothing that serves or sends requests, because a command starts as fast as its imports.
"""

from ringback.service_database.key_ring import accept_lost_keys
from ringback.service_database.keyless_store import accept_restore, migrate_database
from ringback.service_database.shared_store import open_api_keys, open_shared_store

__all__ = ["accept_lost_keys", "accept_restore", "migrate_database", "open_api_keys", "open_shared_store"]
