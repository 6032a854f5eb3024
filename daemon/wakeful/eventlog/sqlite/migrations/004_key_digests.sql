-- The digest of the call that a key belongs to: the same key with another body is refused. NULL: an earlier release, or
-- a caller that gave none.
ALTER TABLE idempotency ADD COLUMN digest BLOB;
