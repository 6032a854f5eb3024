"""The screening example: a ranking with reasons, changes as wakeful reports them, and scores kept between runs."""

import json
import os
from pathlib import Path

import pytest

from examples.example_folder import Tree

PROGRAM = "examples/hr/recruitment_screening.py"
CANDIDATES = "examples/hr/candidates"
SHORTLIST = "examples/hr/out/shortlist.md"
NEWCOMER = {"years": 4, "skills": ["Python", "SQL", "PostgreSQL", "Airflow", "Spark", "Linux"], "city": "Chengdu",
            "expected_salary": 30000}  # fmt: skip


def test_candidates_are_ranked_with_reasons(tree: Tree) -> None:
    """c-0103 computed by hand: 5 counted years at 2 points, postgresql 6, spark 4, linux 3, mandarin 2."""
    tree.succeed(PROGRAM)
    page = tree.read(SHORTLIST)
    assert (
        "| 1 | c-0103 | 25 | 5 years beyond the minimum +10; postgresql +6; spark +4; linux +3; mandarin +2 |" in page
    )
    assert "- c-0104: python\n" in page
    assert "- c-0105: 3 years (has 2)\n" in page


def test_a_new_candidate_is_told_from_the_causes(tree: Tree, tmp_path: Path) -> None:
    """WAKEFUL_CAUSES says how a path changed.

    The output names only candidates, and the shortlist depends on the files alone.
    """
    tree.write(f"{CANDIDATES}/c-0111.json", json.dumps(NEWCOMER))
    by_hand = tree.succeed(PROGRAM)
    page = tree.read(SHORTLIST)
    causes = tmp_path / "causes.json"
    paths = [
        {"path": f"{CANDIDATES}/c-0111.json", "change": "added"},
        {"path": f"{CANDIDATES}/c-0042.json", "change": "removed"},
        {"path": "examples/hr/requirements.json", "change": "modified"},
    ]
    causes.write_text(json.dumps({"causes": [{"binding": "candidates", "paths": paths}, {"binding": "spec"}]}))
    told = tree.succeed(PROGRAM, WAKEFUL_CAUSES=str(causes))
    assert by_hand.splitlines() == ["11 candidates for data engineer; 0 scores reused"]
    assert told.splitlines()[1:] == [
        "removed: c-0042, no longer in the folder",
        "added: c-0111, place 2 with 20 points",
    ]
    assert tree.read(SHORTLIST) == page


def test_changed_paths_are_read_apart_by_nul(tree: Tree, tmp_path: Path) -> None:
    """WAKEFUL_CHANGED alone is enough. Its names may contain a line break or be no valid UTF-8."""
    changed = tmp_path / "changed"
    changed.write_bytes(os.fsencode(f"{CANDIDATES}/c-0101.json") + b"\0examples/odd\nname.json\0\xff.json\0")
    assert tree.succeed(PROGRAM, WAKEFUL_CHANGED=str(changed)).splitlines()[1:] == [
        "changed: c-0101, place 2 with 19 points"
    ]


def test_unchanged_candidates_are_not_scored_again(tree: Tree, tmp_path: Path) -> None:
    """The scratch folder keeps each score under the digest of everything that the score depends on."""
    scratch = str(tmp_path)
    assert "0 scores reused" in tree.succeed(PROGRAM, WAKEFUL_SCRATCH=scratch)
    page = tree.read(SHORTLIST)
    assert "10 scores reused" in tree.succeed(PROGRAM, WAKEFUL_SCRATCH=scratch)
    assert tree.read(SHORTLIST) == page
    tree.replace(f"{CANDIDATES}/c-0105.json", '"years": 2', '"years": 3')
    assert "9 scores reused" in tree.succeed(PROGRAM, WAKEFUL_SCRATCH=scratch)
    tree.replace("examples/hr/requirements.json", '"docker": 2', '"docker": 1')
    assert "0 scores reused" in tree.succeed(PROGRAM, WAKEFUL_SCRATCH=scratch)


@pytest.mark.parametrize("damage", ["{", "[]", '{"a": 1}', '{"a": {"points": 1}}'])
def test_damaged_kept_scores_cost_time_and_not_truth(tree: Tree, tmp_path: Path, damage: str) -> None:
    """The scratch folder is a cache: the program reports the damage and scores again."""
    (tmp_path / "scores.json").write_text(damage)
    told = tree.succeed(PROGRAM, WAKEFUL_SCRATCH=str(tmp_path))
    assert "kept scores are unreadable" in told
    assert "10 scores reused" in tree.succeed(PROGRAM, WAKEFUL_SCRATCH=str(tmp_path))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"years": 3,', "c-0111.json:1: Expecting property name"),
        ("[]", "c-0111.json:1: a list; expected an object"),
        (json.dumps(NEWCOMER | {"years": True}), "c-0111.json:1: years is true; expected a whole number"),
        (
            json.dumps(NEWCOMER | {"years": -1}, indent=1),
            "c-0111.json:2: years is -1; expected a whole number from 0 to 60",
        ),
        (json.dumps(NEWCOMER | {"skills": "python"}), 'c-0111.json:1: skills is "python"; expected a list of words'),
        (json.dumps(NEWCOMER | {"birthday": "1990-01-01"}), "c-0111.json: unknown birthday; screening uses only"),
        (json.dumps({"years": 3}), "c-0111.json: no 'skills'"),
    ],
)
def test_a_bad_candidate_is_told_and_the_shortlist_stays(tree: Tree, text: str, told: str) -> None:
    """The error names file and problem, and the last shortlist stays.

    An unknown key, such as a birthday, is refused.
    """
    tree.write(SHORTLIST, "the last good result\n")
    tree.write(f"{CANDIDATES}/c-0111.json", text)
    ended = tree.run(PROGRAM)
    assert ended.code == 1
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
    assert tree.read(SHORTLIST) == "the last good result\n"


def test_an_empty_folder_gives_an_empty_shortlist(tree: Tree) -> None:
    """An empty folder is a valid input, not an error."""
    for path in (tree.root / CANDIDATES).iterdir():
        path.unlink()
    tree.succeed(PROGRAM)
    assert "0 candidates, 0 with everything required" in tree.read(SHORTLIST)
