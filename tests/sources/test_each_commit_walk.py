"""The pending commits of `each_commit` are those that an independent walk finds, over random graphs.

The walk here knows only parents and contents. The graphs have several roots, merges of two and three, and merges that
change the path themselves. They also have commits that change nothing, changes of the mode alone, and dates that run
backwards.
"""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sources.commit_follower import GitRepo
from wakeful.core.looking.targets import find_commit
from wakeful.sources.git.commit_changes import ABSENT, Question, look_at_each_commit
from wakeful.sources.git.git_command import Repository, locate

# Run by `make test-long`.
pytestmark = [pytest.mark.asyncio, pytest.mark.long]

GRAPHS = 12
COMMITS = 14
PAIRS = 8
CONTENTS = (None, ("100644", "one"), ("100644", "two"), ("100755", "two"))


@dataclass
class Graph:
    """A random history: for each commit by number its parents and the content at the path.

    `ids` are the commits' ids in git.
    """

    parents: list[tuple[int, ...]] = field(default_factory=list)
    contents: list[tuple[str, str] | None] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def reach(self, tips: set[int]) -> set[int]:
        found: set[int] = set()
        ahead = list(tips)
        while ahead:
            one = ahead.pop()
            if one not in found:
                found.add(one)
                ahead += self.parents[one]
        return found

    def list_line(self, head: int, seen: set[int]) -> list[int]:
        """List the commits from the head along first parents, down to a seen one, that differ from their first
        parent.
        """
        line = []
        one: int | None = head
        while one is not None and one not in seen:
            before = self.parents[one][0] if self.parents[one] else None
            if self.contents[one] != (self.contents[before] if before is not None else None):
                line.append(one)
            one = before
        return line[::-1]

    def find_all(self, head: int, seen: set[int]) -> set[int]:
        """Return every commit that was not seen and differs from each of its parents."""
        return {
            one
            for one in self.reach({head}) - seen
            if all(self.contents[one] != self.contents[parent] for parent in self.parents[one])
            and (self.parents[one] or self.contents[one] is not None)
        }


def draw_graph(repo: GitRepo, dice: random.Random) -> Graph:
    graph = Graph()
    script: list[str] = []
    for number in range(COMMITS):
        count = min(number, dice.choices((0, 1, 2, 3), (1, 12, 7, 1))[0])
        parents = tuple(dice.sample(range(max(0, number - 5), number), min(count, min(number, 5))))
        # The content is mostly that of a parent, so only some merges change the path themselves.
        inherited = [graph.contents[parent] for parent in parents]
        content = dice.choice([*inherited, *inherited, dice.choice(CONTENTS)]) if inherited else dice.choice(CONTENTS)
        graph.parents.append(parents)
        graph.contents.append(content)
        when = 1_700_000_000 + dice.choice((number * 100, dice.randrange(-90_000, 90_000)))
        script.append(f"commit refs/heads/c{number}\nmark :{number + 1}\ncommitter a <a@b> {when} +0000\ndata 1\nx\n")
        script += [f"{'from' if place == 0 else 'merge'} :{parent + 1}\n" for place, parent in enumerate(parents)]
        script.append(f"deleteall\nM 100644 inline other\ndata {len(str(number))}\n{number}\n")
        if content is not None:
            mode, text = content
            script.append(f"M {mode} inline dir/path\ndata {len(text)}\n{text}\n")
        script.append("\n")
    subprocess.run(
        ["git", "fast-import", "--quiet", "--force"], cwd=repo.path, input="".join(script), text=True, check=True
    )
    graph.ids = repo("rev-parse", *(f"refs/heads/c{number}" for number in range(COMMITS))).split()
    return graph


async def look(repository: Repository, graph: Graph, head: int, base: str | None, line: str, path: str) -> object:
    return await look_at_each_commit(repository, Question("key", 1, base, graph.ids[head], path, path, line))


@pytest.mark.parametrize("path", ["dir/path", "dir"])
@pytest.mark.parametrize("line", ["first-parent", "all"])
async def test_what_is_pending_is_what_an_independent_walk_finds(tmp_path: Path, line: str, path: str) -> None:
    """The head is any commit, and the base is the head or any ancestor of it.

    Taken one by one, each pending commit comes once, and after its ancestors.
    """
    dice = random.Random(f"{line} {path}")
    repo = GitRepo(tmp_path / "repo")
    compared = 0
    for _ in range(GRAPHS):
        graph = draw_graph(repo, dice)
        numbers = {commit: number for number, commit in enumerate(graph.ids)}
        repository = Repository(await locate(str(repo.path)))
        try:
            for _ in range(PAIRS):
                head = dice.randrange(COMMITS)
                base = dice.choice(sorted(graph.reach({head})))
                seen = graph.reach({base})
                found = await look(repository, graph, head, graph.ids[base], line, path)
                pending = [numbers[find_commit(version)] for version in found.pending]
                assert not found.is_rewritten
                if line == "first-parent":
                    assert pending == graph.list_line(head, seen), (graph, head, base)
                else:
                    assert set(pending) == graph.find_all(head, seen), (graph, head, base)
                    assert all(
                        earlier not in graph.reach({later})
                        or earlier == later
                        or pending.index(earlier) < pending.index(later)
                        for earlier in pending
                        for later in pending
                    )
                taken = []
                position = graph.ids[base]
                while (step := await look(repository, graph, head, position, line, path)).pending:
                    position = step.pending[0]
                    taken.append(numbers[find_commit(position)])
                    assert len(taken) <= len(pending)
                assert taken == pending
                compared += bool(pending)
        finally:
            await repository.close()
    assert compared > GRAPHS


@pytest.mark.parametrize("line", ["first-parent", "all"])
async def test_a_first_look_leaves_nothing_of_the_past_pending(tmp_path: Path, line: str) -> None:
    """The commits that exist at the first look are the starting point, on whatever branch they were made.

    Later commits are pending.
    """
    dice = random.Random(line)
    repo = GitRepo(tmp_path / "repo")
    for _ in range(GRAPHS // 4):
        graph = draw_graph(repo, dice)
        repository = Repository(await locate(str(repo.path)))
        try:
            for head in range(0, COMMITS, 2):
                first = (await look(repository, graph, head, None, line, "dir/path")).version
                again = await look(repository, graph, head, first, line, "dir/path")
                if first == ABSENT:
                    assert not again.pending
                    continue
                assert again.pending == () and not again.is_rewritten
                for later in range(head + 1, COMMITS):
                    if head in graph.reach({later}):
                        found = await look(repository, graph, later, first, line, "dir/path")
                        pending = {graph.ids.index(find_commit(version)) for version in found.pending}
                        seen = graph.reach({head})
                        # On the line of first parents, only the last commit that touched the path is known.
                        known = seen if line == "all" else graph.reach({graph.ids.index(find_commit(first))})
                        expected = graph.find_all(later, known) if line == "all" else set(graph.list_line(later, known))
                        assert pending == expected
        finally:
            await repository.close()


async def test_a_merge_that_changes_the_path_itself_is_not_lost_where_the_branch_follows_it(tmp_path: Path) -> None:
    """HEAD was on the merged branch and moved forward to the merge. The merge is then pending like any commit."""
    repo = GitRepo(tmp_path / "repo")
    repo.commit("src/a", "1")
    repo("checkout", "-q", "-b", "side")
    base = repo.commit("src/a", "2")
    repo("checkout", "-q", "main")
    repo("merge", "-q", "--no-ff", "--no-commit", "side")
    merge = repo.commit("src/a", "made by the merge")
    repository = Repository(await locate(str(repo.path)))
    try:
        for line in ("first-parent", "all"):
            found = await look_at_each_commit(repository, Question("key", 1, base, merge, "src", "src", line))
            assert [find_commit(version) for version in found.pending] == [merge]
    finally:
        await repository.close()
