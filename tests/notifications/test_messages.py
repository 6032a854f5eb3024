"""The forms of a notification's message, and its signature."""

from __future__ import annotations

from wakeful.core.spec.notifier import EmailChannel
from wakeful.notifications.channels.http_post import read_key, sign
from wakeful.notifications.channels.mail import make_mail
from wakeful.notifications.ledger import Delivery
from wakeful.notifications.messages import as_document, as_text, fill, make_message, variables_of
from wakeful.notifications.notices import Notice

NOW = 1_700_000_000_000_000


def notice(name: str = "hr/payroll", words: str = "run 3 failed") -> Notice:
    return Notice(event="failed", session="01a", name=name, seq=42, at=NOW, words=words, run=3)


def delivery(*notices: Notice, missed: int = 0) -> Delivery:
    return Delivery(id="msg_1", notices=notices, made_at=NOW, next_at=NOW, missed=missed)


def test_the_signature_is_that_of_the_standard() -> None:
    """The example comes from the libraries of Standard Webhooks."""
    key = read_key(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_message_about_one_record_names_it() -> None:
    message = make_message(delivery(notice()), "ops", "here", "http://127.0.0.1:8420")
    document = as_document(message)
    assert (document["type"], document["timestamp"]) == ("wakeful.failed", "2023-11-14T22:13:20.000000Z")
    data = document["data"]
    assert (data["session"], data["seq"], data["run"], data["host"]) == ("hr/payroll", 42, 3, "here")
    assert data["link"] == "http://127.0.0.1:8420/#/session/hr%2Fpayroll?at=42"
    assert as_text(message) == "run 3 failed\n\nLook: wakeful why hr/payroll\n" + data["link"]


def test_a_digest_lists_a_bounded_number() -> None:
    many = tuple(notice(f"s{number}") for number in range(60))
    message = make_message(delivery(*many, missed=5), "ops", "here", None)
    assert message.title == "wakeful: 65 messages (60 failed)"
    assert len(message.data["items"]) == 50
    assert message.words.endswith("and 10 more\nand 5 messages that did not fit")


def test_a_placeholder_is_filled_in_once() -> None:
    """A placeholder within a session's words is not filled in."""
    message = make_message(delivery(notice(words="{title} {secret} {words}")), "ops", "here", None)
    filled = fill({"text": "{title}: {words}", "list": ["{seq}", "{other}", "{"], "n": "5"}, message)
    assert filled == {
        "text": "hr/payroll failed: {title} {secret} {words}", "list": ["42", "{other}", "{"], "n": "5"
    }  # fmt: skip


def test_no_word_of_a_session_becomes_a_header_or_a_variable_of_its_own() -> None:
    hostile = notice("x", "a\\nBcc: ben@example.org")
    message = make_message(delivery(hostile), "ops", "here", None)
    channel = EmailChannel(to=("ana@example.org",), sender="w@example.org", server="smtp://localhost")
    mail = make_mail(channel, message, "here")
    assert mail["Bcc"] is None and mail["To"] == "ana@example.org"
    assert set(variables_of(message)) == {
        f"WAKEFUL_NOTIFY_{name}" for name in ("ID", "EVENT", "TITLE", "WORDS", "SESSION", "SEQ", "LOOK", "LINK")
    }
