"""The targets of looks: a target is a binding resolved against its root, with the session's own writes hidden.

The core names targets in `Look` actions and knows them by `key`; sources know how to look. Two
bindings with the same key share one look. Ordered kinds that live in the log (cron, mailbox, webhook,
sessions, activations) have no target: the core knows their positions itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec
from msgspec import Struct

from wakeful.core.spec.bindings import (
    AnyBinding,
    CommitLine,
    CommitsBinding,
    Compare,
    CronBinding,
    EveryBinding,
    FileBinding,
    MessageBinding,
    ProbeBinding,
    ServiceBinding,
    SessionBinding,
    WebhookBinding,
)
from wakeful.core.spec.session import Confinement, SessionSpec


class FileTarget(Struct, frozen=True, kw_only=True, tag=True):
    """Paths under root. `hidden` are the patterns the session itself writes (rule 7)."""

    key: str
    root: str
    pattern: str
    exclude: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    compare: Compare = "content"
    settle_seconds: float = 0.1
    settle_max_seconds: float = 2.0


def find_commit(position: str) -> str:
    """Return the commit of an `each_commit` position."""
    return position.partition(",")[0]


def join_position(commit: str, seen: Iterable[str]) -> str:
    """Make a position in a graph of commits: the commit, then further commits whose histories were seen as well."""
    return ",".join((commit, *sorted(set(seen) - {commit})))


def list_tips(position: str) -> list[str]:
    """List the commits whose histories together were seen at this position."""
    return position.split(",")


class CommitsTarget(Struct, frozen=True, kw_only=True, tag=True):
    key: str
    root: str
    path: str
    repo: str | None = None
    branch: str | None = None
    each_commit: bool = False
    line: CommitLine = "first-parent"
    settle_seconds: float = 0.1
    settle_max_seconds: float = 2.0


class ProbeTarget(Struct, frozen=True, kw_only=True, tag=True):
    key: str
    root: str
    argv: tuple[str, ...]
    check_every_seconds: float
    timeout_seconds: float
    secrets: tuple[str, ...] = ()
    # A probe is confined like the runs of its session: by the confinement, the file bindings and the repositories.
    # A probe can only read the files that runs may write.
    confinement: Confinement = Confinement()
    reads: tuple[str, ...] = ()
    repositories: tuple[tuple[str | None, str], ...] = ()
    settle_seconds: float = 0.0
    settle_max_seconds: float = 0.0


class ServiceTarget(Struct, frozen=True, kw_only=True, tag=True):
    key: str
    url: str
    # For an agent's MCP server: the agent, the name of the server, and the folder that a program is started in.
    agent: str = ""
    server: str | None = None
    root: str = ""
    check_every_seconds: float
    timeout_seconds: float
    settle_seconds: float = 0.0
    settle_max_seconds: float = 0.0


Target = FileTarget | CommitsTarget | ProbeTarget | ServiceTarget


def find_hidden(binding: FileBinding, written: tuple[str, ...]) -> tuple[str, ...]:
    """Paths this binding must ignore because its own session writes them (rule 7).

    A `both` binding keeps its own pattern.
    """
    if binding.access == "write":
        return ()
    return tuple(pattern for pattern in written if pattern != binding.pattern) if binding.access == "both" else written


def target_of(spec: SessionSpec, binding: AnyBinding, written: tuple[str, ...] | None = None) -> Target | None:
    """Return the target that this binding looks at. None if the core itself knows the version.

    `written` are the spec's written patterns. A caller with many bindings of one spec passes them to save time.
    """
    match binding:
        case FileBinding():
            return _target_of_file(
                spec.root, binding, find_hidden(binding, spec.written_patterns if written is None else written)
            )
        case CommitsBinding():
            owner = spec.name if binding.each_commit else ""
            return CommitsTarget(
                key="\x1f".join(("commits", spec.root, binding.identity, owner, _say_settle(binding))),
                root=spec.root,
                path=binding.path,
                repo=binding.repo,
                branch=binding.branch,
                each_commit=binding.each_commit,
                line=binding.line,
                settle_seconds=binding.settle_seconds,
                settle_max_seconds=binding.settle_max_seconds,
            )
        case ProbeBinding():
            reads = tuple(one.pattern for one in spec.files)
            repositories = tuple((one.repo, one.path) for one in spec.bindings if isinstance(one, CommitsBinding))
            held = msgspec.json.encode((spec.confinement, reads, repositories)).decode()
            times = f"{binding.check_every_seconds:g}/{binding.timeout_seconds:g}"
            return ProbeTarget(
                key="\x1f".join(("probe", spec.root, spec.name, binding.identity, *spec.secrets, held, times)),
                root=spec.root,
                argv=binding.argv,
                check_every_seconds=binding.check_every_seconds,
                timeout_seconds=binding.timeout_seconds,
                secrets=spec.secrets,
                confinement=spec.confinement,
                reads=reads,
                repositories=repositories,
            )
        case ServiceBinding():
            agent = spec.agent or "" if binding.server is not None else ""
            whose = (agent, spec.root) if binding.server is not None else ()
            return ServiceTarget(
                key="\x1f".join(
                    ("service", binding.url, *whose, f"{binding.check_every_seconds:g}/{binding.timeout_seconds:g}")
                ),
                url=binding.url,
                agent=agent,
                server=binding.server,
                root=spec.root if binding.server is not None else "",
                check_every_seconds=binding.check_every_seconds,
                timeout_seconds=binding.timeout_seconds,
            )
        case CronBinding() | EveryBinding() | MessageBinding() | SessionBinding() | WebhookBinding():
            return None
        case _:
            assert_never(binding)


def _say_settle(binding: FileBinding | CommitsBinding) -> str:
    """Format the settle times for the key of a target. Sources ignore known keys, so a key holds every setting of its
    looks."""
    return f"{binding.settle_seconds:g}/{binding.settle_max_seconds:g}"


def _target_of_file(root: str, binding: FileBinding, hidden: tuple[str, ...]) -> FileTarget:
    """Build the target of a file binding. Equal bindings of different sessions share it if they hide the same paths."""
    # The key is not the binding's identity, so that a writer and a reader of one path share one look.
    what = (binding.pattern, binding.compare, "!".join(binding.exclude), ",".join(hidden))
    return FileTarget(
        key="\x1f".join(("file", root, *what, _say_settle(binding))),
        root=root,
        pattern=binding.pattern,
        exclude=binding.exclude,
        hidden=hidden,
        compare=binding.compare,
        settle_seconds=binding.settle_seconds,
        settle_max_seconds=binding.settle_max_seconds,
    )
