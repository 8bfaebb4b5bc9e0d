-- Deliveries are leased by an owner, as calls are: what a process that is gone has left is known by its name, whatever the clock.
ALTER TABLE deliveries ADD COLUMN lease_owner TEXT;

-- How far scheduling time has come: one row. A process that starts after the clock was set back goes on from there.
CREATE TABLE scheduling_time (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    instant INTEGER NOT NULL
) STRICT;
