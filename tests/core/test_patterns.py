"""Patterns: their meaning, when two intersect, and that the trie finds the same patterns as a naive matcher."""

import fnmatch
import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wakeful.core.looking.patterns import Excludes, PathTrie, Pattern, PatternError, intersects
from wakeful.core.spec.session import DEFAULT_EXCLUDES

MEANS = [
    ("data/*.csv", "data/a.csv", True),
    ("data/*.csv", "data/a.tsv", False),
    ("data/*.csv", "data/sub/a.csv", False),
    ("data/*.csv", "data/new\nline.csv", True),
    ("data/**/*.csv", "data/a.csv", True),
    ("data/**/*.csv", "data/x/y/a.csv", True),
    ("data/**", "data/x/y", True),
    ("data/**", "data", False),
    ("**", "anything/at/all", True),
    ("**/name", "name", True),
    ("**/name", "a/b/name", True),
    ("**/name", "a/b/rename", False),
    ("src/", "src/a/b.py", True),
    ("src/", "src", False),
    ("src/*/", "src/a/b/c.py", True),
    ("src/*/", "src/a", False),
    ("src", "src", True),
    ("src", "src/below.py", True),
    ("src", "srcs", False),
    ("./src//a.py", "src/a.py", True),
    ("a/../b.txt", "b.txt", True),
    ("?.txt", "a.txt", True),
    ("?.txt", "ab.txt", False),
    ("x[0-9].txt", "x7.txt", True),
    ("x[!0-9].txt", "x7.txt", False),
    ("x[!a]y", "x/y", False),
    ("x[]]y", "x]y", True),
    ("x[y", "x[y", True),
    ("x[[]y]", "x[y]", True),
    ("a**b", "axxb", True),
    ("a**b", "a/b", False),
    ("a/**/b/**/c", "a/b/c", True),
    ("a/**/b/**/c", "a/1/b/2/3/c", True),
    ("a/**/b/**/c", "a/1/c", False),
    ("*.csv", "udc\udcff.csv", True),
    ("*", ".hidden", True),
]


@pytest.mark.parametrize(("pattern", "path", "expected"), MEANS)
def test_a_pattern_means_what_the_documentation_says(pattern: str, path: str, expected: bool) -> None:
    """A pattern matches the same paths when it is relative and when it is absolute."""
    parsed = Pattern.parse(pattern)
    assert parsed.matches(path) is expected
    assert parsed.under("/ro[o]t").matches(f"/ro[o]t/{path}") is expected


@pytest.mark.parametrize(
    ("text", "base", "literal_prefix", "is_literal"),
    [
        ("a/b/c.csv", "a/b/c.csv", "a/b", True),
        ("a/b/*.csv", "a/b", "a/b", False),
        ("*.csv", "", "", False),
        ("/etc/hosts", "/etc/hosts", "/etc", True),
        ("a/b/", "a/b", "a/b", False),
        (".", "", "", False),
    ],
)
def test_the_literal_part_ends_before_the_first_wildcard(
    text: str, base: str, literal_prefix: str, is_literal: bool
) -> None:
    """A file walk begins in the base. A watch begins in the literal prefix."""
    pattern = Pattern.parse(text)
    assert (pattern.base, pattern.literal_prefix, pattern.is_literal) == (base, literal_prefix, is_literal)


def test_a_pattern_may_leave_its_root_and_stays_absolute_once_it_is() -> None:
    """`../shared` is resolved against the root as text. An absolute pattern ignores the root."""
    assert Pattern.parse("../shared/*.csv").under("/home/me/project").base == "/home/me/shared"
    assert Pattern.parse("/srv/x").under("/home").base == "/srv/x"
    assert Pattern.parse("../../../../x").under("/a/b").base == "/x"


@pytest.mark.parametrize("text", ["", "a\0b", "a/*/../b", "x[z-a]"])
def test_what_cannot_mean_a_path_is_refused_in_words(text: str) -> None:
    """A pattern that cannot match any path is refused. The error names the pattern."""
    with pytest.raises(PatternError, match="pattern"):
        Pattern.parse(text)


@pytest.mark.parametrize(
    ("pattern", "folder", "expected"),
    [
        ("/a/*/x.csv", "/a", True),
        ("/a/*/x.csv", "/a/b", True),
        ("/a/*/x.csv", "/a/b/c", False),
        ("/a/**/x.csv", "/a/b/c", True),
        ("/a/b*/**/x", "/a/c", False),
        ("/a/b*/**/x", "/a/bc/d", True),
        ("/a/b", "/a", True),
        ("/a/b", "/a/b/c", True),
        ("/a/b", "/a/c", False),
        ("/*.csv", "/x", False),
        ("/**", "/x/y", True),
    ],
)
def test_a_walk_enters_only_folders_that_can_hold_a_match(pattern: str, folder: str, expected: bool) -> None:
    """Pruning stops `a/*/x.csv` from walking whole trees."""
    assert Pattern.parse(pattern).enters(folder) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a/b.csv", "a/b.csv", True),
        ("a/b.csv", "a/c.csv", False),
        ("a/*.csv", "a/b.csv", True),
        ("a/*.csv", "a/b.tsv", False),
        ("a/*.csv", "*/b.csv", True),
        ("a/*.csv", "b/*.csv", False),
        ("a/x*", "a/*y", True),
        ("a/x*", "a/y*", False),
        ("**/b.csv", "a/**", True),
        ("**/b.csv", "a/*.tsv", False),
        ("a/**/b", "a/**/c", False),
        ("a/**/b", "a/x/b", True),
        ("out", "out/report.csv", True),
        ("out/", "out", True),
        ("a?c", "a*", True),
        ("a?c", "ac", False),
        ("a[xy]", "ax", True),
        ("a[xy]", "az", False),
        ("a[xy]", "a[z]", True),
    ],
)
def test_two_patterns_meet_when_a_path_fits_both(one: str, other: str, expected: bool) -> None:
    """The graph draws an edge between intersecting patterns.

    If character classes leave doubt, the patterns count as intersecting.
    """
    assert intersects(Pattern.parse(one), Pattern.parse(other)) is expected
    assert intersects(Pattern.parse(other), Pattern.parse(one)) is expected


NAMES = st.sampled_from(["a", "b", "ab", "a.csv", "b.csv", "B.csv"])
GLOBS = st.sampled_from(["a", "b", "*", "**", "a*", "*.csv", "?", "[ab]", "[!a]*", "*b*"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
PATTERNS = st.tuples(st.lists(GLOBS, min_size=1, max_size=4).map("/".join), st.sampled_from(["", "", "/"])).map("".join)


def matches_naively(pattern: str, path: str) -> bool:
    """Match name by name, by the definition. No expression crosses a slash."""
    globs = [glob for glob in pattern.split("/") if glob]
    if not any(wild in pattern for wild in "*?[") and not pattern.endswith("/"):
        return path == pattern or path.startswith(f"{pattern}/")
    if pattern.endswith("/") or globs[-1] == "**":
        globs = [*globs, "**", "*"]
    return _fits(globs, path.split("/"))


def _fits(globs: list[str], names: list[str]) -> bool:
    if not globs:
        return not names
    if globs[0] == "**":
        return _fits(globs[1:], names) or (bool(names) and _fits(globs, names[1:]))
    return bool(names) and fnmatch.fnmatchcase(names[0], globs[0]) and _fits(globs[1:], names[1:])


@given(PATTERNS, PATHS)
@example("**/**/a", "a")
@example("a/**/", "a/b")
def test_matching_agrees_with_the_definition(pattern: str, path: str) -> None:
    """The compiled expression and the naive matcher agree."""
    assert Pattern.parse(pattern).matches(path) is matches_naively(pattern, path)


@given(PATTERNS, PATTERNS, PATHS)
def test_two_patterns_that_share_a_path_are_found_to_meet(one: str, other: str, path: str) -> None:
    """Patterns that match a common path always intersect. So the graph misses no edge."""
    if matches_naively(one, path) and matches_naively(other, path):
        assert intersects(Pattern.parse(one), Pattern.parse(other))


@given(PATTERNS, PATHS)
def test_the_folders_of_a_match_are_all_entered(pattern: str, path: str) -> None:
    """Pruning never hides a match."""
    parsed = Pattern.parse(pattern).under("/root")
    if parsed.matches(f"/root/{path}"):
        names = path.split("/")
        folders = ["/".join(("/root", *names[:depth])) for depth in range(len(names))]
        assert all(parsed.enters(folder) for folder in folders)


@given(
    st.lists(PATTERNS, max_size=12), st.lists(st.integers(0, 11), max_size=6), st.lists(PATHS, min_size=1, max_size=6)
)
def test_the_trie_finds_exactly_what_a_naive_matcher_finds(
    patterns: list[str], removed: list[int], paths: list[str]
) -> None:
    """The trie and the naive matcher agree, also after removals and with the same pattern inserted twice."""
    trie: PathTrie[int] = PathTrie()
    kept = dict(enumerate(patterns))
    for number, text in kept.items():
        trie.insert(Pattern.parse(text).under("/root"), number)
    for number in removed:
        if number in kept:
            trie.remove(Pattern.parse(kept.pop(number)).under("/root"), number)
    for path in paths:
        expected = sorted(number for number, text in kept.items() if matches_naively(text, path))
        assert sorted(trie.find(f"/root/{path}")) == expected
    assert sorted(number for _, number in trie.entries()) == sorted(kept)


@given(st.lists(PATTERNS, max_size=8), PATTERNS)
def test_the_trie_finds_every_pattern_that_meets_another(patterns: list[str], other: str) -> None:
    """The trie finds the same intersecting patterns as a comparison with each pattern does."""
    trie: PathTrie[int] = PathTrie()
    for number, text in enumerate(patterns):
        trie.insert(Pattern.parse(text).under("/root"), number)
    pattern = Pattern.parse(other).under("/root")
    expected = [
        number for number, text in enumerate(patterns) if intersects(Pattern.parse(text).under("/root"), pattern)
    ]
    assert sorted(trie.meeting(pattern)) == expected


def test_the_trie_knows_the_folders_its_patterns_lead_through() -> None:
    """Only literal folders count. The last name of a literal path does not."""
    trie: PathTrie[int] = PathTrie()
    trie.insert(Pattern.parse("/a/b/*.csv"), 1)
    trie.insert(Pattern.parse("/c/d"), 2)
    assert [path for path in ("/a", "/a/b", "/a/b/c", "/c", "/c/d", "/x") if trie.leads_through(path)] == [
        "/a",
        "/a/b",
        "/c",
    ]


def test_an_empty_trie_keeps_no_folders() -> None:
    """An entry that was inserted and removed leaves no folders behind. Removing an unknown entry does nothing."""
    trie: PathTrie[str] = PathTrie()
    pattern = Pattern.parse("/a/b/c/*.csv")
    trie.insert(pattern, "x")
    trie.remove(pattern, "y")
    assert trie.find("/a/b/c/1.csv") == ["x"]
    trie.remove(pattern, "x")
    trie.remove(pattern, "x")
    assert pickle.dumps(trie) == pickle.dumps(PathTrie())


def test_hostile_patterns_cost_no_more_than_kind_ones() -> None:
    """Adjacent wildcards do not multiply the cost. A backtracking expression would not finish this test."""
    names = Pattern.parse("*a" * 40 + "*b")
    folders = Pattern.parse("**/a/" * 20 + "b")
    assert not names.matches("a" * 200)
    assert not folders.matches("/".join("a" * 200))


def covers(
    path: str, exclude: tuple[str, ...] = (), hidden: tuple[str, ...] = (), start: int = len("/root/")
) -> str | None:
    return Excludes.build("/root", DEFAULT_EXCLUDES, exclude, hidden).covers(path, start)


@pytest.mark.parametrize(
    ("path", "exclude", "by"),
    [
        ("/root/.git/HEAD", (), ".git"),
        ("/root/a/node_modules/x/y.js", (), "node_modules"),
        ("/root/a/.b.swp", (), "*.swp"),
        ("/root/a/~$plan.xlsx", (), "~$*"),
        ("/root/a/.~lock.plan.ods#", (), ".~lock.*#"),
        # Emacs: the lock of a file that is being edited, and the auto-save file.
        ("/root/a/.#plan.org", (), ".#*"),
        ("/root/a/#plan.org#", (), "#*#"),
        ("/root/a/#plan.org", (), None),
        ("/root/a/gitter", (), None),
        ("/root/a/build/x", ("build",), "build"),
        ("/root/a/build/x", ("build/",), "build"),
        ("/root/docs/api.md", ("docs/*.md",), "docs/*.md"),
        ("/root/docs/sub/api.md", ("docs/*",), "docs/*"),
        ("/root/docs/sub/api.md", ("docs/*.md",), None),
        ("/root/docs/old/x", ("docs/old",), "docs/old"),
    ],
)
def test_an_exclude_covers_a_name_anywhere_or_a_pattern_under_root(
    path: str, exclude: tuple[str, ...], by: str | None
) -> None:
    """The answer names the exclude that covers the path, for `why`."""
    assert covers(path, exclude) == by


def test_what_the_session_writes_is_hidden_exactly() -> None:
    """A write pattern hides its matches, but not the contents of a folder that it happens to match (rule 7)."""
    assert "written by the session itself" in (covers("/root/out/a.csv", hidden=("out/*.csv",)) or "")
    assert covers("/root/out/a.csv/b", hidden=("out/*.csv",)) is None


def test_a_name_written_out_in_the_binding_is_not_excluded() -> None:
    """Default excludes apply only behind the literal prefix.

    So a session can bind `notes.tmp` or a path below `.venv`.
    """
    assert covers("/root/.venv/lib/x.py", start=len("/root/.venv/lib/")) is None
    assert covers("/root/.venv/lib/.git/x", start=len("/root/.venv/lib/")) == ".git"


def test_near_misses_say_what_differs_and_come_nearest_first() -> None:
    """`why` shows the bindings that a path almost matches."""
    trie: PathTrie[str] = PathTrie()
    for text in ("/p/other/report.csv", "/p/data/*.tsv", "/p/Data/*.CSV", "/p/data/report.csv", "/q/**", "/p/far/*.md"):
        trie.insert(Pattern.parse(text), text)
    misses = trie.near_misses("/p/data/report.csv")
    assert [miss.value for miss in misses] == ["/p/Data/*.CSV", "/p/data/*.tsv", "/p/other/report.csv"]
    assert "case" in misses[0].words
    assert ".tsv" in misses[1].words
    assert "/p/other" in misses[2].words


def test_a_pattern_is_alone_when_nothing_else_lies_on_its_way_or_below() -> None:
    """A lone pattern needs no lookup per path. In doubt the answer is no."""
    trie: PathTrie[int] = PathTrie()
    mine = Pattern.parse("/data/1/*.txt")
    trie.insert(mine, 1)
    trie.insert(Pattern.parse("/data/2/*.txt"), 2)
    assert trie.is_alone(mine)
    for text in ("/data/**", "/data/1", "/data/1/a.txt", "/data/1/below/*", "/**/b.txt", "/data/1/*.txt"):
        other = Pattern.parse(text)
        trie.insert(other, 3)
        assert not trie.is_alone(mine), text
        trie.remove(other, 3)
        assert trie.is_alone(mine), text
