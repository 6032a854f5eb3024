"""The rule of two: a run has at most two of private reads (secrets among them), untrusted input and a way out.

A spec that asks for all three itself is refused when it is read. This module judges what comes through other sessions:
files that they write and this session may read, and messages. A session that would have all three this way asks a
person before it runs. Called by the verdict on a start and by `send`. Nothing here reads the text itself.
"""

from __future__ import annotations

from wakeful.core.deciding.core import Core
from wakeful.core.looking.granted_places import find_private
from wakeful.core.record.state import Session
from wakeful.core.spec.session import SessionSpec


def find_way_out(spec: SessionSpec) -> str | None:
    """Say how a run could carry data out of its project. None if it cannot."""
    if not spec.confinement.is_enforced:
        return f"isolation: {spec.confinement.level}"
    if spec.confinement.network:
        return "network"
    if spec.fetch:
        return "fetch"
    outside = [path for path in (*spec.written_patterns, *spec.confinement.allow_write) if _leads_out(path, spec.root)]
    return f"writes {outside[0]}" if outside else None


def _leads_out(path: str, root: str) -> bool:
    """Is this path outside of root? A path that contains `..` or starts with `~` counts as outside."""
    return (
        ".." in path
        or path.startswith("~")
        or (path.startswith("/") and not f"{path}/".startswith(f"{root.rstrip('/')}/"))
    )


def find_untrusted(spec: SessionSpec) -> str | None:
    """Return the name of a binding with untrusted text, or `fetch`, because strangers write web pages. None without."""
    return next((binding.name for binding in spec.bindings if binding.is_untrusted), "fetch" if spec.fetch else None)


def find_source(core: Core, session: Session) -> str | None:
    """Return the session through which untrusted text reaches this one, or itself if its own bindings are untrusted.

    None if no untrusted text reaches it. The mark of a message stays until a person has reviewed the session, because
    its text may be in files, facts and the hand-off by now.
    """
    if session.spec is not None and find_untrusted(session.spec) is not None:
        return session.name
    if session.mailbox.untrusted_by is not None:
        return session.mailbox.untrusted_by
    return core.words.find(core.graph, core.state).sources.get(session.name)


def find_rule_of_two_breach(core: Core, session: Session) -> str | None:
    """Say why a person must be asked before this session runs. None if it has at most two of the three."""
    spec = session.spec
    way_out = find_way_out(spec) if spec is not None else None
    # The usual case: there is no way out.
    if spec is None or way_out is None:
        return None
    for member in _list_line(core, session):
        source = find_source(core, member)
        # A session without untrusted text is skipped: no stranger could tell it what to do with its private data.
        private = find_private(member.spec) if source is not None and member.spec is not None else None
        if private is not None:
            told = ", ".join(
                private.items if member is session else (f"{one} of {member.name}" for one in private.items)
            )
            return (
                f"what it reads came by way of {source}, which reads untrusted words; {private.kind}: {told}; "
                f"way out: {way_out}"
            )
    return None


def _list_line(core: Core, session: Session) -> list[Session]:
    """List the session, then all sessions from which untrusted text reaches it, by files or by messages.

    The private data of each of them can come along.
    """
    feeders = core.words.find(core.graph, core.state).feeders
    found: dict[str, Session] = {}
    ahead = [session.name]
    while ahead:
        name = ahead.pop(0)
        if name in found or name not in core.state.ids:
            continue
        # Use the value that the caller passed, which may have another spec than the one in the state.
        found[name] = member = session if name == session.name else core.state.by_name(name)
        ahead += sorted(feeders.get(name, ()))
        if member.mailbox.untrusted_by is not None:
            ahead.append(member.mailbox.untrusted_by)
    return list(found.values())
