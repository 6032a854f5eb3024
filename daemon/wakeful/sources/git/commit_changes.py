"""The details of a look at commits: which paths differ, which commits changed them, what is pending.

`source` has found the head and the object at the path. These functions turn them into a `LookResult`. A detail that
cannot be read (a tree that was garbage-collected, a list that is too long) is left out. It never makes a known version
unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from wakeful.core.looking.targets import find_commit, list_tips
from wakeful.core.record.observations import LookResult, PathChange
from wakeful.core.spec.bindings import CommitLine
from wakeful.sources.git.commit_walk import are_behind, find_newest, list_graph, list_line
from wakeful.sources.git.git_command import Found, GitRefusal, Repository, is_object_id
from wakeful.sources.git.trees import find_changes

# The version of a path that its branch does not contain. It is known, so it differs from unknown (rule 5).
ABSENT = "absent"
PENDING_LIMIT = 1000
DESCRIBED_COMMITS = 20
_SUBJECT_CHARACTERS = 200
# The most commits whose tree at the path is read one by one. For more commits, git walks them itself.
_ASKED_COMMITS = 32
_HEADS_REMEMBERED = 16
# The most commits that touch the path in which the previous version is searched.
_SEARCHED_COMMITS = 256


class Question(NamedTuple):
    """One look. The head was found, `path` is inside the repository, `shown` is the same path as the spec writes it."""

    key: str
    generation: int
    base: str | None
    head: str
    path: str
    shown: str
    line: CommitLine = "first-parent"

    @property
    def name(self) -> str:
        return f"{self.head}:{self.path}" if self.path else f"{self.head}^{{tree}}"


@dataclass(slots=True)
class Viewed:
    """The last results of looks at a target: its last version, and the heads at which its last versions were found."""

    version: str | None = None
    heads: dict[str, str] = field(default_factory=dict)

    def take(self, version: str, head: str) -> None:
        self.version = version
        self.heads.pop(version, None)
        self.heads[version] = head
        while len(self.heads) > _HEADS_REMEMBERED:
            del self.heads[next(iter(self.heads))]


async def look_at_tree(repository: Repository, question: Question, found: Found | None, viewed: Viewed) -> LookResult:
    """Look at the object at the path, whose id is the version.

    The delta starts from `base`, or from the last result.
    """
    if found is None:
        found = await _find_reported_missing(repository, question)
    version = ABSENT if found is None else found.id
    previous = question.base or viewed.version
    changes: tuple[PathChange, ...] | None = ()
    commits: tuple[str, ...] = ()
    if previous is not None and previous != version:
        changes = await _find_changes_since(repository, previous, found, question.shown)
        commits = await _describe_touching(repository, question, viewed.heads.get(previous), previous)
    return LookResult(
        target=question.key,
        generation=question.generation,
        version=version,
        previous=None if changes is None else previous,
        changes=changes or (),
        commits=commits,
        stamp=version,
        is_absent=found is None,
    )


async def look_at_each_commit(repository: Repository, question: Question) -> LookResult:
    """Look at each commit. The version is the newest commit that touches the path; `pending` holds those after `base`,
    oldest first (rule 38).
    """
    version = await find_newest(repository, question.head, question.path, question.line) or ABSENT
    is_rewritten = False
    pending: list[str] = []
    base = question.base
    if base is not None and base != version:
        tips = list_tips(base) if base != ABSENT else []
        is_rewritten = not await are_behind(repository, tips, question.head)
        if is_rewritten:
            pending = [version] if version != ABSENT else []
        elif question.line == "all":
            pending = await list_graph(repository, question.head, tips, question.path)
        elif tips:
            pending = await list_line(repository, question.head, base, question.path)
        else:
            pending = (await repository.list_touching(question.head, path=question.path))[::-1]
    return LookResult(
        target=question.key,
        generation=question.generation,
        version=version,
        previous=base,
        base=base,
        pending=tuple(pending[:PENDING_LIMIT]),
        is_rewritten=is_rewritten,
        commits=await describe_commits(repository, [find_commit(position) for position in pending[:DESCRIBED_COMMITS]]),
        stamp=version,
        is_absent=version == ABSENT,
    )


async def describe_commits(repository: Repository, commits: list[str]) -> tuple[str, ...]:
    """Describe each commit in one line, `<id> <author>: <subject>`, without control characters."""
    return tuple([_describe_commit(commit, await repository.read(commit)) for commit in commits])


async def _find_changes_since(
    repository: Repository, previous: str, found: Found | None, shown: str
) -> tuple[PathChange, ...] | None:
    """Find the changed paths. None if they cannot be known. The session is still woken by the new version, and the
    result shows that the paths are unknown.
    """
    if previous == ABSENT:
        before = None
    elif is_object_id(previous):
        (before,) = await repository.find([previous])
        if before is None:
            # The history was rewritten and the old tree was garbage-collected.
            return None
    else:
        return None
    try:
        return await find_changes(repository, before, found, shown)
    except GitRefusal:
        # A tree inside is not in this clone, or is too large to read.
        return None


async def _describe_touching(
    repository: Repository, question: Question, since: str | None, previous: str
) -> tuple[str, ...]:
    try:
        touching = await _list_touching(repository, question, since, previous)
        return await describe_commits(repository, touching[:DESCRIBED_COMMITS])
    except GitRefusal:
        # The old head was garbage-collected, or the history is too long to walk in time. The version is valid without
        # its commits.
        return ()


async def _list_touching(repository: Repository, question: Question, since: str | None, previous: str) -> list[str]:
    """List the commits since another head that changed the path, newest first.

    If that head is unknown, list the commits since the previous version.
    """
    if since is None:
        return await _list_back_to(repository, question, previous)
    commits = await repository.list_range(question.head, without=since, newest=_ASKED_COMMITS + 1)
    if len(commits) > _ASKED_COMMITS:
        return await _list_back_to(repository, question, previous)
    if not commits:
        return []
    # Thousands of sessions can follow one branch and ask for the same range. A request to a git process that already
    # runs costs a hundredth of a new process.
    trees = await repository.find(
        [*(f"{commit}:{question.path}" for commit in commits), f"{commits[-1]}^1:{question.path}"]
    )
    return [commit for commit, after, before in zip(commits, trees, trees[1:], strict=False) if after != before]


async def _list_back_to(repository: Repository, question: Question, previous: str) -> list[str]:
    """List the commits that changed the path since it had the previous version, newest first. Empty if it never had."""
    commits = await repository.list_touching(question.head, path=question.path, newest=_SEARCHED_COMMITS)
    found = await repository.find(
        [f"{commit}:{question.path}" if question.path else f"{commit}^{{tree}}" for commit in commits]
    )
    versions = [ABSENT if one is None else one.id for one in found]
    if previous in versions:
        return commits[: versions.index(previous)]
    # Before the first commit that touched it, the path was absent.
    return commits if previous == ABSENT and len(commits) < _SEARCHED_COMMITS else []


async def _find_reported_missing(repository: Repository, question: Question) -> Found | None:
    """Find the object at a path that git reports as missing. None if the commit does not contain the path.

    Two other cases are not absent: a submodule, whose commit is elsewhere and whose id is the version, and an object
    that a partial clone lacks (unknown, raises GitRefusal).
    """
    parts = question.path.split("/") if question.path else []
    names = [
        f"{question.head}^{{tree}}",
        *(f"{question.head}:{'/'.join(parts[:count])}" for count in range(1, len(parts))),
    ]
    parents = await repository.find(names)
    if parents[0] is None:
        raise GitRefusal(f"the tree of commit {question.head} is not in {repository.place.git_dir}")
    depth = max(count for count, found in enumerate(parents) if found is not None and None not in parents[:count])
    parent = parents[depth]
    if parent is None or parent.kind != "tree":
        return None
    entry = (await repository.read_tree(parent.id)).get(parts[depth].encode("utf-8", "surrogateescape"))
    if entry is None:
        return None
    if entry.mode == 0o160000 and depth == len(parts) - 1:
        return Found(entry.id, "commit")
    raise GitRefusal(f"{question.path} is named by commit {question.head}, but its content is not in this clone")


def _describe_commit(commit: str, content: bytes) -> str:
    header, _, message = content.partition(b"\n\n")
    author = next((line for line in header.split(b"\n") if line.startswith(b"author ")), b"author ")
    name = author.removeprefix(b"author ").partition(b" <")[0]
    subject = message.strip().partition(b"\n")[0]
    return f"{commit} {_make_printable(name)}: {_make_printable(subject)}"


def _make_printable(text: bytes) -> str:
    shown = text.decode("utf-8", "backslashreplace")[:_SUBJECT_CHARACTERS]
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in shown)
