"""Payloads of webhooks: read as JSON, extracted from forms, and compared with filters."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from wakeful.webhooks.payload_filter import find_mismatch, read_payload

FORM = "application/x-www-form-urlencoded; charset=utf-8"
ISSUE = {
    "action": "opened",
    "repository": {"full_name": "org/repo", "private": True},
    "issue": {"number": 17, "labels": [{"name": "bug"}, {"name": "new"}], "milestone": None},
}


def test_json_stays_as_it_was_sent_and_a_form_becomes_json() -> None:
    """GitHub and Slack put their JSON into a form field. A plain form becomes an object of its fields."""
    text = b'{"a":  1}'
    assert read_payload(text, "application/json") == (text, ".json", {"a": 1})
    assert read_payload(text, "") == (text, ".json", {"a": 1})
    assert read_payload(urlencode({"payload": text.decode()}).encode(), FORM) == (text, ".json", {"a": 1})
    plain = read_payload(b"command=%2Fdeploy&text=&x=1&x=2", FORM)
    assert plain.document == {"command": "/deploy", "text": "", "x": ["1", "2"]}
    assert json.loads(plain.content) == plain.document


def test_anything_else_is_kept_and_not_understood() -> None:
    """Text, bytes, empty bodies and too deep JSON are kept without a document."""
    assert read_payload(b"Hello, World!", "text/plain") == (b"Hello, World!", ".txt", None)
    assert read_payload(b"\xff\xfe", "application/octet-stream") == (b"\xff\xfe", ".bin", None)
    assert read_payload(b"", "").document is None
    assert read_payload(b"[" * 100_000, "application/json").document is None
    assert read_payload(b"a=1&" * 5_000, FORM).suffix == ".bin"
    assert read_payload(b"\xff=1", FORM).document is None


PASSING: list[dict[str, tuple[str, ...]]] = [
    {},
    {"action": ("opened",)},
    {"action": ("closed", "opened")},
    {"event": ("issues",), "repository.full_name": ("org/repo",)},
    {"issue.number": ("17",)},
    {"repository.private": ("true",)},
    {"issue.milestone": ("null",)},
    {"issue.labels.name": ("bug",)},
    {"issue.labels.1.name": ("new",)},
]
STOPPED: list[tuple[dict[str, tuple[str, ...]], str]] = [
    ({"action": ("closed",)}, "action is opened, and only closed counts"),
    ({"event": ("push", "ping")}, "event is issues, and only push or ping counts"),
    ({"issue.title": ("x",)}, "issue.title is not there, and only x counts"),
    ({"issue.labels.1.name": ("bug",)}, "issue.labels.1.name is new, and only bug counts"),
    ({"issue.labels.7.name": ("bug",)}, "issue.labels.7.name is not there"),
    ({"action": ("opened",), "repository.full_name": ("org/other",)}, "repository.full_name is org/repo"),
]


@pytest.mark.parametrize("only", PASSING)
def test_a_filter_lets_its_values_through(only: dict[str, tuple[str, ...]]) -> None:
    """Each path must have one of its values. A list on the way stands for all of its items."""
    assert find_mismatch(only, "issues", ISSUE) is None


@pytest.mark.parametrize(("only", "words"), STOPPED)
def test_a_filter_says_what_it_stopped(only: dict[str, tuple[str, ...]], words: str) -> None:
    """The words contain the value that was found."""
    found = find_mismatch(only, "issues", ISSUE)
    assert found is not None and found.startswith(words)


@pytest.mark.parametrize("document", [None, 1, "text", [], {"event": "issues"}])
def test_a_payload_of_another_shape_passes_no_filter(document: Any) -> None:
    """The key `event` of a payload counts as the event if the sender has no header for it."""
    assert find_mismatch({"action": ("opened",)}, None, document) is not None
    assert (find_mismatch({"event": ("issues",)}, None, document) is None) == (document == {"event": "issues"})
