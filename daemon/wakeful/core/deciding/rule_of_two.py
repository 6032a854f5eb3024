"""Whose words a run would act on: the rule of two.

Of private reads (secrets among them), untrusted input and a way out a run has at most two. A spec that asks for all
three itself is refused when it is read; here it is judged what comes by way of others: sessions that write what it is
granted to read, and messages. A session that would have all three this way asks a person before it runs. Asked by the
verdict and by `send`; nothing here knows what the words are.
"""

from __future__ import annotations

from wakeful.core.deciding.core import Core
from wakeful.core.looking.granted_places import find_private
from wakeful.core.record.state import Session
from wakeful.core.spec.session import SessionSpec


def find_way_out(spec: SessionSpec) -> str | None:
    """How a run could carry something out of its project, in words; None: it cannot."""
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
    """The binding by which words of strangers come in, or `fetch`: pages are written by strangers."""
    return next((binding.name for binding in spec.bindings if binding.is_untrusted), "fetch" if spec.fetch else None)


def find_source(core: Core, session: Session) -> str | None:
    """By whom words of strangers reach this session, its own bindings included: a session's name; None: by nobody.

    The mark that a message left stays until a person has looked: its words may be in files, facts and notes by now.
    """
    if session.spec is not None and find_untrusted(session.spec) is not None:
        return session.name
    if session.mailbox.untrusted_by is not None:
        return session.mailbox.untrusted_by
    return core.words.find(core.graph, core.state).sources.get(session.name)


def find_third_leg(core: Core, session: Session) -> str | None:
    """Why a person is to be asked before this session runs, in words; None: it has two of the three at most."""
    spec = session.spec
    way_out = find_way_out(spec) if spec is not None else None
    # The usual case.
    if spec is None or way_out is None:
        return None
    for member in _list_line(core, session):
        source = find_source(core, member)
        # A session that never heard strangers is skipped: no stranger could tell it what to do with its private data.
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
    """Itself, then all who heard strangers and from whom something reaches it, by files or by messages:
    what one of them knows can come along."""
    feeders = core.words.find(core.graph, core.state).feeders
    found: dict[str, Session] = {}
    ahead = [session.name]
    while ahead:
        name = ahead.pop(0)
        if name in found or name not in core.state.ids:
            continue
        # The caller's own: it may be judged under another spec than the one in the state.
        found[name] = member = session if name == session.name else core.state.by_name(name)
        ahead += sorted(feeders.get(name, ()))
        if member.mailbox.untrusted_by is not None:
            ahead.append(member.mailbox.untrusted_by)
    return list(found.values())
