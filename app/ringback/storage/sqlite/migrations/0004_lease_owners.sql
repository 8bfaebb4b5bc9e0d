-- Deliveries are leased by an owner, as calls are: what a process that is gone has left is known by its name, whatever the clock.
ALTER TABLE deliveries ADD COLUMN lease_owner TEXT;
