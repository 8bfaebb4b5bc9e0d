-- oldest code: 9
-- Which key each id of the key ring means (signing/sealing.py): nodes that have different keys under one id are told so.
-- NULL until a service that has the key starts.
ALTER TABLE sealing_keys ADD COLUMN check_value BLOB;
