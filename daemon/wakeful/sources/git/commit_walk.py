"""Lists commits for `each_commit` (rule 38): those that come after a position and changed a path.

`first-parent` follows the line of a branch and takes a merge as one commit. `all` takes every commit that was not
reachable before and that differs from each of its parents. git's own path limits are not used together with exclusions.
They judge a merge only by its parents that are not excluded, and stop early if commit dates run backwards.
"""

from __future__ import annotations

from collections.abc import Sequence

from wakeful.core.looking.targets import join_position
from wakeful.sources.git.git_command import Found, Repository, is_object_id

_FIRST_COUNT = 2
_GROWTH = 8


async def find_newest(repository: Repository, head: str, path: str, line: str) -> str | None:
    """Find the position that covers everything up to this head. None if no commit up to it touches the path."""
    newest = await repository.list_touching(head, path=path, newest=1, is_whole_graph=line == "all")
    if not newest:
        return None
    # With `all`, the newest commit does not cover the commits of other branches, but the head does.
    return join_position(newest[0], [head]) if line == "all" else newest[0]


async def are_behind(repository: Repository, tips: Sequence[str], head: str) -> bool:
    """Are all of these commits still part of this head's history?"""
    if not all(map(is_object_id, tips)):
        return False
    known = await repository.find([f"{tip}^{{commit}}" for tip in tips])
    for tip, found in zip(tips, known, strict=True):
        if found is None or (tip != head and not await repository.is_ancestor(tip, head)):
            return False
    return True


async def list_line(repository: Repository, head: str, base: str, path: str) -> list[str]:
    """List the commits of the first-parent line that touch the path and are not reachable from `base`, oldest first.

    The commits reachable from `base` are the older part of the line. A binary search finds where that part begins.
    """
    count, found = _FIRST_COUNT, list[str]()
    while True:
        found = await repository.list_touching(head, path=path, newest=count)
        if base in found:
            return found[: found.index(base)][::-1]
        if len(found) < count or await repository.is_ancestor(found[-1], base):
            break
        count *= _GROWTH
    first, last = 0, len(found)
    while first < last:
        middle = (first + last) // 2
        if await repository.is_ancestor(found[middle], base):
            last = middle
        else:
            first = middle + 1
    return found[:first][::-1]


async def list_graph(repository: Repository, head: str, tips: Sequence[str], path: str) -> list[str]:
    """List the positions of all commits that touch the path and are not reachable from `tips`, each after its
    ancestors.
    """
    parents = await _list_new(repository, head, tips)
    touching = set(await _find_touching(repository, parents, path))
    # By commit: the marks that represent its whole seen history. A mark is a tip, or a touching commit that comes
    # earlier in this loop.
    below: dict[str, frozenset[str]] = {tip: frozenset((tip,)) for tip in tips}
    frontier = set(tips)
    positions: list[str] = []
    for commit, before in parents.items():
        marks = frozenset[str]().union(*(below.get(parent, frozenset()) for parent in before))
        if commit in touching:
            frontier = (frontier - marks) | {commit}
            positions.append(join_position(commit, frontier))
            marks = frozenset((commit,))
        below[commit] = marks
    return positions


async def _list_new(repository: Repository, head: str, tips: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """List the commits reachable from the head and from no tip, with their parents, oldest first."""
    if head in tips:
        return {}
    parents = await repository.list_parents(head, without=tips)
    while True:
        # git may list commits that are reachable from a tip. The oldest of these have no parent in the list.
        lowest = [
            one
            for one, before in parents.items()
            if not any(parent in parents for parent in before) and not set(before) & set(tips)
        ]
        seen = [one for one in lowest if await _is_behind_any(repository, one, tips)]
        if not seen:
            return parents
        for one in seen:
            del parents[one]


async def _is_behind_any(repository: Repository, commit: str, tips: Sequence[str]) -> bool:
    for tip in tips:
        if commit == tip or await repository.is_ancestor(commit, tip):
            return True
    return False


async def _find_touching(repository: Repository, parents: dict[str, tuple[str, ...]], path: str) -> list[str]:
    """Find the commits whose object at the path, or its mode, differs from that of each parent. For the whole tree, all
    commits.
    """
    if not path:
        return list(parents)
    commits = list(dict.fromkeys([*parents, *(parent for before in parents.values() for parent in before)]))
    standing = dict(zip(commits, await repository.find([f"{commit}:{path}" for commit in commits]), strict=True))
    touching: list[str] = []
    for commit, before in parents.items():
        own = standing[commit]
        if not before and own is None:
            continue
        equal = [parent for parent in before if standing[parent] == own]
        if all([await _has_other_mode(repository, commit, parent, path, own) for parent in equal]):
            touching.append(commit)
    return touching


async def _has_other_mode(repository: Repository, commit: str, parent: str, path: str, own: Found | None) -> bool:
    """Has the path another mode in the parent? Asked if its content is the same in both."""
    if own is None or own.kind != "blob":
        return False
    folder, _, name = path.rpartition("/")
    trees = await repository.find([f"{one}:{folder}" if folder else f"{one}^{{tree}}" for one in (commit, parent)])
    if None in trees or trees[0] == trees[1]:
        return False
    modes = [
        (await repository.read_tree(tree.id))[name.encode("utf-8", "surrogateescape")].mode
        for tree in trees
        if tree is not None
    ]
    return modes[0] != modes[1]
