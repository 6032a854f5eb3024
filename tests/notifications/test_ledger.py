"""The rules of one notifier: what is reported once, what is gathered, when it retries and when it gives up."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.notifications import ledger as rules
from wakeful.notifications.ledger import BACKOFF_SECONDS, BURST, MOST_ATTEMPTS, SECOND, Ledger
from wakeful.notifications.notices import Notice

NOW = 1_700_000_000 * SECOND


def notice(event: str = "failed", session: str = "a", at: int = NOW, seq: int = 7) -> Notice:
    return Notice(event=event, session=session, name=session, seq=seq, at=at, words="it broke")


def told(ledger: Ledger) -> list[tuple[str, str]]:
    return [(one.session, one.event) for one in ledger.waiting]


def sent(ledger: Ledger, now: int) -> Ledger:
    ledger = rules.make_delivery(ledger, None, now, "msg_1")
    return rules.settle_delivered(ledger, "title", now)


def test_the_same_trouble_is_told_once_and_counted() -> None:
    ledger = Ledger(position=0)
    for seq in (1, 2, 3):
        ledger = rules.take_news(ledger, notice(seq=seq), ())
    assert told(ledger) == [("a", "failed")] and ledger.waiting[0].times == 3
    ledger = rules.take_news(sent(ledger, NOW), notice(seq=4), ())
    assert told(ledger) == []
    ledger = rules.take_ending(ledger, "a", notice("recovered"))
    assert told(ledger) == [("a", "recovered")] and "after 4 failed runs" in ledger.waiting[0].words
    # After the recovery the same failure is reported again.
    assert told(rules.take_news(sent(ledger, NOW), notice(), ())) == [("a", "failed")]


def test_a_success_after_nothing_that_was_told_is_no_news() -> None:
    assert told(rules.take_ending(Ledger(position=0), "a", notice("recovered"))) == []


def test_a_failure_below_one_that_was_told_is_not_told() -> None:
    ledger = rules.take_news(Ledger(position=0), notice(session="root"), ())
    ledger = rules.take_news(ledger, notice(session="reader"), ("other", "root"))
    assert told(ledger) == [("root", "failed")]
    # A question of a session below it is reported all the same.
    assert told(rules.take_news(ledger, notice("asks", "reader"), ("root",)))[-1] == ("reader", "asks")
    # The reader's failure was not reported, so its recovery is not reported either.
    assert told(rules.take_ending(ledger, "reader", notice("recovered", "reader"))) == [("root", "failed")]


def test_a_budget_that_is_spent_every_hour_is_told_now_and_then() -> None:
    ledger = Ledger(position=0)
    for hour in range(12):
        ledger = rules.take_news(ledger, notice("budget", at=NOW + hour * 3600 * SECOND), ())
    assert len(ledger.waiting) == 2


def test_a_few_are_sent_one_by_one_and_many_as_one() -> None:
    ledger = Ledger(position=0)
    for number in range(BURST):
        ledger = rules.take_news(ledger, notice(session=f"s{number}"), ())
    for number in range(BURST):
        ledger = rules.make_delivery(ledger, None, NOW, f"msg_{number}")
        assert ledger.delivery is not None and len(ledger.delivery.notices) == 1
        ledger = rules.settle_delivered(ledger, "t", NOW)
    # The limit for this minute is reached. The next notices wait for its end and are sent together.
    for number in range(3):
        ledger = rules.take_news(ledger, notice(session=f"t{number}"), ())
    assert rules.find_delay(ledger, None, NOW) == 60.0
    ledger = rules.make_delivery(ledger, None, NOW + 60 * SECOND, "msg_9")
    assert ledger.delivery is not None and len(ledger.delivery.notices) == 3
    flood = Ledger(position=0)
    for number in range(BURST + 1):
        flood = rules.take_news(flood, notice(session=f"s{number}"), ())
    flood = rules.make_delivery(flood, None, NOW, "msg_1")
    assert flood.delivery is not None and len(flood.delivery.notices) == BURST + 1 and flood.waiting == ()


def test_a_digest_waits_and_takes_all() -> None:
    ledger = rules.take_news(Ledger(position=0), notice(), ())
    ledger = rules.take_news(ledger, notice(session="b", at=NOW + 10 * SECOND), ())
    assert rules.find_delay(ledger, 300.0, NOW + 100 * SECOND) == 200.0
    ledger = rules.make_delivery(ledger, 300.0, NOW + 300 * SECOND, "msg_1")
    assert ledger.delivery is not None and len(ledger.delivery.notices) == 2


def test_a_message_is_tried_for_hours_under_one_id_and_then_given_up() -> None:
    ledger = rules.make_delivery(rules.take_news(Ledger(position=0), notice(), ()), None, NOW, "msg_1")
    now, waits = NOW, []
    for _ in range(MOST_ATTEMPTS - 1):
        ledger = rules.settle_failed(ledger, "t", "down", now)
        assert ledger.delivery is not None and ledger.delivery.id == "msg_1"
        waits.append((ledger.delivery.next_at - now) / SECOND)
        now = ledger.delivery.next_at
    assert all(base <= wait <= base * 1.1 for base, wait in zip(BACKOFF_SECONDS, waits, strict=True))
    ledger = rules.settle_failed(ledger, "t", "down", now)
    assert ledger.delivery is None and ledger.given_up == 1 and ledger.ended[-1].problem == "down"
    assert rules.is_troubled(ledger)


def test_a_server_says_when_to_come_back() -> None:
    ledger = rules.make_delivery(rules.take_news(Ledger(position=0), notice(), ()), None, NOW, "msg_1")
    ledger = rules.settle_failed(ledger, "t", "busy", NOW, 3600.0)
    assert ledger.delivery is not None and ledger.delivery.next_at - NOW == 3600 * SECOND


def test_a_disabled_notifier_counts_what_it_missed() -> None:
    ledger = rules.make_delivery(rules.take_news(Ledger(position=0), notice(), ()), None, NOW, "msg_1")
    ledger = rules.take_news(rules.settle_gone(ledger, "t", "gone", NOW), notice(session="b"), ())
    assert rules.find_delay(ledger, None, NOW) is None and ledger.missed == 1 and ledger.waiting == ()
    # A new address gets a new try.
    assert rules.adapt(ledger, "new").disabled is None


@given(st.integers(-(10**15), 10**15), st.sampled_from([None, 5.0, 300.0]))
def test_a_clock_that_was_set_holds_no_message_longer_than_its_interval(shift: int, digest: float | None) -> None:
    ledger = rules.take_news(Ledger(position=0), notice(), ())
    delay = rules.find_delay(ledger, digest, NOW + shift)
    assert delay is not None and 0 <= delay <= (digest or rules.GATHER_SECONDS)
    trying = rules.settle_failed(rules.make_delivery(ledger, digest, NOW, "msg_1"), "t", "down", NOW)
    delay = rules.find_delay(trying, digest, NOW + shift)
    assert delay is not None and 0 <= delay <= BACKOFF_SECONDS[-1] * 1.2


def test_a_ledger_survives_the_disk() -> None:
    ledger = rules.take_news(Ledger(position=9, held={"x": "no secret"}), notice(), ())
    ledger = rules.make_delivery(ledger, None, NOW, "msg_1")
    assert msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger) == ledger
    # A ledger of an earlier release lacks later fields.
    assert msgspec.json.decode(b'{"position": 3}', type=Ledger).position == 3


@pytest.mark.parametrize("looked", [None, {"a", "b"}])
def test_a_hold_is_told_when_it_begins(looked: set[str] | None) -> None:
    new = rules.take_holds(Ledger(position=0), {"a": "no secret"}, None, [notice("sleeping")])
    assert told(new) == [] and new.held == {"a": "no secret"}
    later = rules.take_holds(new, {"a": "no secret", "b": "no trust"}, looked, [notice("sleeping", "b")])
    assert told(later) == [("b", "sleeping")]
    assert rules.take_holds(later, {"b": "no trust"}, looked, []).held == {"b": "no trust"}
