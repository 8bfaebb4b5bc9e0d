-- Facts beside the category of a failed attempt, for the webhook's owner: the status code, where a redirect leads, why a
-- certificate is invalid. Older code does not know the new categories, and refuses to run on this database.
ALTER TABLE attempts ADD COLUMN detail text COLLATE "C";
ALTER TABLE webhooks ADD COLUMN last_error_detail text COLLATE "C";
