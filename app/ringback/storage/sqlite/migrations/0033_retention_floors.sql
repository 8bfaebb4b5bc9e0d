-- One name for the place up to which retention has removed events, in SQL as in Python.
ALTER TABLE log_heads RENAME COLUMN horizon TO retention_floor;
