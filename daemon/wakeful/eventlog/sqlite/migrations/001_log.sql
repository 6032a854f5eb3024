-- The log. `event` and `payload` are the truth and are only ever added to, but that a payload's body may be erased (NULL).
-- Rowid tables on purpose: a clustered (session, seq) key took 3.3 times the disk at 1 KiB payloads.
-- There is no table of heads: a session's head is one seek in event_by_seq, and an index that is not kept cannot disagree.

CREATE TABLE store (id BLOB NOT NULL) STRICT;
INSERT INTO store (id) VALUES (randomblob(16));

CREATE TABLE session (
    key INTEGER PRIMARY KEY,
    id  TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE event (
    id           INTEGER PRIMARY KEY,  -- position among all sessions, in the order of recording
    session      INTEGER NOT NULL REFERENCES session (key),
    seq          INTEGER NOT NULL,
    at           INTEGER NOT NULL,     -- microseconds UTC
    kind         TEXT NOT NULL,
    author       TEXT NOT NULL,
    run          INTEGER,
    parent       TEXT,                 -- "session:seq"
    rationale    TEXT,
    payload_hash BLOB NOT NULL,
    hash         BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX event_by_seq ON event (session, seq);

-- Where a session's time went backwards: each row's record is earlier than the one before it. Between two of them time rises
-- with seq, so a moment is found by bisection; an index on (session, at) would cost 60 % more pages in every group commit.
CREATE TABLE clock_step (
    session INTEGER NOT NULL REFERENCES session (key),
    seq     INTEGER NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE payload (
    event INTEGER PRIMARY KEY REFERENCES event (id),
    body  BLOB                         -- NULL: erased; no row at all: damage
) STRICT;

CREATE TABLE idempotency (
    session   INTEGER NOT NULL REFERENCES session (key),
    key       TEXT NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

-- A cache: any row may be missing.
CREATE TABLE snapshot (
    session    INTEGER NOT NULL REFERENCES session (key),
    seq        INTEGER NOT NULL,
    state      BLOB NOT NULL,
    state_hash BLOB NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT;

-- One row per group commit: what the anchor is compared with.
CREATE TABLE flush (
    number     INTEGER PRIMARY KEY,
    last_event INTEGER NOT NULL,
    roll       BLOB NOT NULL
) STRICT;
