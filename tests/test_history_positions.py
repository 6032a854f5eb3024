"""Past positions and states, compared with random histories: `show --at` gives the state of that time."""

import random

import pytest

from core.random_history import History
from wakeful.core.record.events import FactSet, NoteAdded, PayloadErased, SessionOpened
from wakeful.core.record.knowledge import Checkpoint
from wakeful.core.record.state import Lineage, Session, State
from wakeful.errors import CallerError
from wakeful.eventlog.codec import encode, encode_state
from wakeful.eventlog.contract import Append, Draft, EventLog
from wakeful.eventlog.memory_engine import MemoryLog
from wakeful.history.positions import find_seq, fold_until, read_moment

NOW = 1_800_000_000_000_000


def live(seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[History, dict[tuple[str, int], Session]]:
    """Run a random history. Return it with the state that the core held after each record."""
    lived: dict[tuple[str, int], Session] = {}
    put = State.put

    def put_and_remember(self: State, session: Session) -> None:
        # A decision that a crash undid is made again, and its state is replaced here.
        lived[(session.id, session.seq)] = session
        put(self, session)

    with monkeypatch.context() as patch:
        patch.setattr(State, "put", put_and_remember)
        history = History(seed)
        history.live(60)
    return history, lived


def keep(history: History, lived: dict[tuple[str, int], Session], rng: random.Random) -> EventLog:
    """Write the history to a log, with snapshots at random places."""
    log = MemoryLog()
    for entry in history.world.log:
        log.append_blocking(
            [Append(entry.session, entry.seq - 1, (Draft(entry.kind, entry.payload, entry.author),))], entry.at
        )
        if rng.random() < 0.05:
            log.save_snapshot_blocking(entry.session, entry.seq, encode_state(lived[(entry.session, entry.seq)]))
    return log


@pytest.mark.parametrize("seed", range(12))
def test_the_state_at_every_record_is_what_was_held_then(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for every record of every session, despite crashes, random snapshots and clocks that were set back."""
    history, lived = live(seed, monkeypatch)
    log = keep(history, lived, random.Random(seed))
    try:
        heads = history.world.fold_log()
        for entry in history.world.log:
            assert fold_until(log, heads[entry.session], entry.seq) == lived[(entry.session, entry.seq)]
    finally:
        log.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_time_means_the_newest_record_that_was_there(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds also if the clock was set back between two records."""
    history, lived = live(seed, monkeypatch)
    log = keep(history, lived, random.Random(seed))
    try:
        for session in history.world.fold_log().values():
            own = [entry for entry in history.world.log if entry.session == session.id]
            for entry in own:
                ago = f"{(NOW - entry.at) / 1e6:.6f}s"
                newest = max(one.seq for one in own if one.at <= read_moment(ago, NOW))
                assert find_seq(log, session, ago, NOW) == newest
    finally:
        log.close()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T06:00:00Z", 1_769_839_200_000_000),
        ("2026-01-31T14:00:00+08:00", 1_769_839_200_000_000),
        ("2h", NOW - 7_200_000_000),
        ("500ms", NOW - 500_000),
        ("1.5d", NOW - 129_600_000_000),
        ("0", NOW),
        ("999999999d", 0),
    ],
)
def test_a_time_is_rfc_3339_or_how_long_ago(text: str, moment: int) -> None:
    """A time is a number with a unit, as in specs, or a moment with its zone."""
    assert read_moment(text, NOW) == moment


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2h30m", "-2h", "2 h", "2026-01-31", "2026-01-31T06:00:00", "12x", "²h", "1e9s", "NaN"]
)
def test_what_is_no_time_is_refused_in_words(text: str) -> None:
    """A wrong time is refused, never taken for now."""
    with pytest.raises(CallerError, match="RFC 3339|time zone"):
        read_moment(text, NOW)


def test_a_checkpoint_is_a_position() -> None:
    """A checkpoint is found by its name. An unknown name is refused, and the error lists the known ones."""
    session = Session(
        id="x",
        name="payroll",
        opened_at=1,
        seq=40,
        lineage=Lineage(checkpoints={"march": Checkpoint(seq=12, at=1, author="a")}),
    )
    log = MemoryLog()
    try:
        assert find_seq(log, session, "march", NOW) == 12
        with pytest.raises(CallerError, match="payroll has no checkpoint 'april' .its checkpoints are march."):
            find_seq(log, session, "april", NOW)
    finally:
        log.close()


def test_what_was_erased_is_folded_by_its_stand_in() -> None:
    """Positions and counts stay as they were, and the erased secret is not shown."""
    opened, secret = SessionOpened(id="x", name="payroll"), FactSet(key="password", value="hunter2")
    erased = PayloadErased(erased=2, kind="fact_set", stand_in={"key": "password", "value": "(erased)"})
    drafts = tuple(
        Draft(*encode(event), "person:ada")
        for event in (opened, secret, NoteAdded(text="next"), erased, NoteAdded(text="last"))
    )
    log = MemoryLog()
    try:
        log.append_blocking([Append("x", 0, drafts)], 1)
        log.erase("x", [2])
        head = Session(id="x", name="payroll", opened_at=1, seq=5)
        past = fold_until(log, head, 3)
        assert (
            past.knowledge.facts["password"].value == "(erased)" and past.knowledge.handoff == "next" and past.seq == 3
        )
        log.erase("x", [3])
        with pytest.raises(CallerError, match="record 3 of payroll was erased without a stand-in"):
            fold_until(log, head, 4)
    finally:
        log.close()
