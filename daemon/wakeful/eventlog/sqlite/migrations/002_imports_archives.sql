-- Histories that come and go.

-- An import that was begun and not finished: its session is hidden from every start until it has come to its head.
CREATE TABLE import (
    session  TEXT PRIMARY KEY,         -- its id: before the first batch there is no row in `session`
    last_seq INTEGER NOT NULL,
    head     BLOB NOT NULL
) STRICT;

-- Sessions that are here only to be read: forks go back to them, nobody opens them.
CREATE TABLE inert (session TEXT PRIMARY KEY) STRICT;

-- Payloads kept elsewhere: inside the span, a payload without a row is archived, and one with a NULL body was erased.
CREATE TABLE archived (
    session   INTEGER PRIMARY KEY REFERENCES session (key),
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL
) STRICT;

-- Counts how often payloads went or came back: an index over them that was made at another count is made anew.
CREATE TABLE payload_change (count INTEGER NOT NULL) STRICT;
INSERT INTO payload_change (count) VALUES (0);
