"""Finding the bindings of a path: the trie, compared with matching every pattern, in one run. It has no bars."""

from __future__ import annotations

import fnmatch
import random
import re
import time
from collections.abc import Callable

from table import Row, print_table
from wakeful.core.looking.patterns import PathTrie, Pattern

SECTION = "finding the bindings of a path"
SEED = 7
EVENTS = 2000


def make_patterns(count: int, chance: random.Random) -> list[str]:
    """Make patterns as people write them: half name one file, and one in twenty matches a name anywhere."""
    patterns = []
    for number in range(count):
        folder = f"/srv/project{number % 100}/team{number % 37}/s{number}"
        kind = chance.random()
        if kind < 0.5:
            patterns.append(f"{folder}/input.csv")
        elif kind < 0.8:
            patterns.append(f"{folder}/*.csv")
        elif kind < 0.95:
            patterns.append(f"{folder}/**/*.md")
        else:
            patterns.append(f"**/config{number}.yaml")
    return patterns


def make_paths(count: int, chance: random.Random) -> list[str]:
    names = ("input.csv", "other.csv", "docs/a/b.md", "nothing.bin")
    numbers = (chance.randrange(count) for _ in range(EVENTS))
    return [f"/srv/project{n % 100}/team{n % 37}/s{n}/{chance.choice(names)}" for n in numbers]


def microseconds_each(find: Callable[[str], object], paths: list[str]) -> float:
    """Return the best of three rounds. The others show only other load on the machine."""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        for path in paths:
            find(path)
        best = min(best, time.perf_counter() - began)
    return best / len(paths) * 1e6


def compare(count: int) -> list[Row]:
    """Measure all methods with the same patterns and paths."""
    chance = random.Random(SEED)
    texts = make_patterns(count, chance)
    paths = make_paths(count, chance)

    began = time.perf_counter()
    trie: PathTrie[int] = PathTrie()
    for number, text in enumerate(texts):
        trie.insert(Pattern.parse(text), number)
    trie_ms = (time.perf_counter() - began) * 1e3

    patterns = [Pattern.parse(text) for text in texts]
    began = time.perf_counter()
    expressions = [re.compile(fnmatch.translate(text)) for text in texts]
    compile_ms = (time.perf_counter() - began) * 1e3

    few = paths[:20]
    for path in few:
        assert sorted(trie.find(path)) == [number for number, pattern in enumerate(patterns) if pattern.matches(path)]
    each = microseconds_each(trie.find, paths)
    methods = {
        "every pattern in turn": (microseconds_each(lambda path: [p for p in patterns if p.matches(path)], few), 0.0),
        "every expression in turn": (
            microseconds_each(lambda path: [e for e in expressions if e.match(path)], few),
            compile_ms,
        ),
    }
    rows = [
        Row(SECTION, f"literal-prefix trie, {count:,} patterns", each, "us a path", note=f"built in {trie_ms:.0f} ms")
    ]
    for method, (took, built) in methods.items():
        rows.append(
            Row(
                SECTION,
                f"{method}, {count:,} patterns",
                took,
                "us a path",
                note=f"{took / each:.0f}x, built in {built:.0f} ms",
            )
        )
    return rows


def measure() -> list[Row]:
    return [row for count in (100, 1_000, 10_000) for row in compare(count)]


if __name__ == "__main__":
    print_table(measure())
