-- oldest code: 15
-- How far on the way to its suspension the owner of a webhook was warned. A node of an older version raises no warning.
ALTER TABLE webhooks ADD COLUMN alerted_percent INTEGER NOT NULL DEFAULT 0;
