"""The text of a record: its values, and the keys of some maps, because people choose these keys."""

from wakeful.core.record.erased_payloads import list_values


def test_names_of_fields_say_nothing_and_values_do() -> None:
    """Numbers count as text. True, false and null do not."""
    payload = {
        "outcome": "failed",
        "is_final": True,
        "reason": None,
        "exit_code": 3,
        "usage": {"usd": 0.5},
        "touched": ["a.csv", "b.csv"],
    }
    assert list(list_values(payload)) == ["failed", "3", "0.5", "a.csv", "b.csv"]


def test_keys_that_people_chose_are_values() -> None:
    """These are paths and names of people and facts. The identity of a binding is not one of them."""
    payload = {"wrote": {"out/a.csv": "d1"}, "people": {"ana": "maintainer"}, "versions": {"file in.txt content": "d2"}}
    assert list(list_values(payload)) == ["out/a.csv", "d1", "ana", "maintainer", "d2"]


def test_json_inside_a_text_is_read_and_broken_json_is_text() -> None:
    """Deeply nested JSON is treated as text."""
    assert list(list_values({"arguments": '{"path": "a.md", "lines": [1, 2]}'})) == ["a.md", "1", "2"]
    assert list(list_values({"text": "{not json}"})) == ["{not json}"]
    assert list(list_values({"text": '"quoted"'})) == ['"quoted"']
    deep = "[" * 50_000 + "]" * 50_000
    assert list(list_values({"text": deep})) == [deep]
