"""Implementations of `domain.ports.Store`: the database of calls, events, webhooks and deliveries.

    open.py      opens the store behind a URL; urls.py parses it, url_parameters.py what is behind its question mark
    records.py   the columns of every record, for the column types of one database
    upstream_login_records.py  the stored form of logins to upstreams
    codec.py     column codecs: select lists, inserts, and rows to records and back
    queries.py   loads named statements from .sql files; but for copying/, no other file contains a statement
    units.py     a unit of work that waits, and its end; unit_queues.py: the order in which units run
    signals.py   waiters and their notifications, within one process
    log_appends.py  appends to logs as several statements
    rows/        the row classes of every store, on named statements
    sqlite/      the default store: one file, and no service to start
    postgres/    the store of many nodes
    migrations.py  numbered migrations, and which code may run on a database
    store_wrapper.py  the base of stores around another one
    schema.py    reads the state of a database's schema
    postgres_programs.py  runs PostgreSQL's own programs for backups
    copying/     copies an installation from SQLite to PostgreSQL; its statements are made from the names of tables and columns

A dialect is a folder with its connections, its units of work and the same statements: a diff of the two sql/ folders lists the
differences. PostgreSQL has one statement in the place of several on the way of a call, because there each is a round trip: an
end of calls is three (`domain.log_appends`), for a batch of any size. Both run the same suite: tests/conformance. A store
reads and writes rows, and promises what the ports say. The rules are in the layers above.

Past one PostgreSQL
-------------------
Measured on two busy cores that PostgreSQL 18 shared with a node and its receivers (`scripts/bench delivery|scale|nodes`):
the end of a call costs PostgreSQL 0.4 ms of CPU and 6 kB of write-ahead log, its callback 0.3 ms and 3 kB. The node needs 1
ms for both. The rows take 5 kB besides arguments and result. Operations cost the same beside a thousand and a hundred
thousand rows that they are not about. What breaks first, in this order:

1. The disk. At 100 calls a second, two weeks of retention are 600 GB. Shorten the retention first.
2. One principal reaches its limit: the ends of its calls are written one transaction after the other, because each holds
   the head of its log until the commit. At 0.4 ms each these are 2,500 ends a second at most, on any number of nodes. Give
   a large team several principals.
3. PostgreSQL's connections: a node has 16. With the default of 100, six nodes; then raise `max_connections`. A pooler must
   keep sessions, because nodes listen and prepare statements.
4. PostgreSQL's CPU and log device: some 1,400 calls with callbacks a second for each core, and 9 kB of log for each.

Beyond that, shard by principal. Calls, results, events, webhooks, deliveries and their bodies, tombstones and sessions
belong to one principal. Only batches write rows of several principals (ends, attempts, the janitor's work), and they can be
split. So:

- Several installations, each with its own PostgreSQL, behind a router that knows each principal's installation from its API
  key or token. Nothing here changes. Moving a principal is a copy of its rows while its keys are disabled.
- Or one PostgreSQL that distributes tables itself (Citus, with `principal` as the distribution column). Then every primary
  key needs the principal, and so do the statements that find rows by id. Nothing home-made stands between a node and its
  database.

What stays global: API keys (they name the principal), sealing keys, the catalog and the names of joined tools, turns
between principals at an upstream, breakers of origins and the limits of nodes. Each may exist once for each shard: then an
upstream takes turns between the principals of one shard, and a dead receiver opens one breaker for each shard.

Read replicas serve what may be late: lists, counts and metrics. Also polls of events: `seq` is the order of commits, and a
replica replays commits in their order, so its log is older and has no holes. A unit that decides something reads on the
primary.
"""
