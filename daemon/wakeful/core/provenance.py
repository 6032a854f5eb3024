"""Whose words a run would act on: the rule of two.

Of secrets, untrusted input and a way out a run has at most two. A spec that asks for all three itself is refused when it is read;
here it is judged what comes by way of others: sessions whose output it reads, and messages. A session that would have all three
this way asks a person before it runs. Asked by the verdict and by `send`; nothing here knows what the words are.
"""

from __future__ import annotations

from wakeful.core.machine import Core
from wakeful.core.spec import SessionSpec
from wakeful.core.state import Session


def find_way_out(spec: SessionSpec) -> str | None:
    """How a run could carry something out of its project, in words; None: it cannot."""
    if not spec.confinement.is_enforced:
        return f"isolation: {spec.confinement.level}"
    if spec.confinement.network:
        return "network"
    outside = [path for path in (*spec.written_patterns, *spec.confinement.allow_write) if _leads_out(path, spec.root)]
    return f"writes {outside[0]}" if outside else None


def _leads_out(path: str, root: str) -> bool:
    """Outside of root. What has `..` or `~` in it is taken to be."""
    return ".." in path or path.startswith("~") or (path.startswith("/") and not f"{path}/".startswith(f"{root.rstrip('/')}/"))


def find_untrusted(spec: SessionSpec) -> str | None:
    """The binding by which words of strangers come in."""
    return next((binding.name for binding in spec.bindings if binding.is_untrusted), None)


def find_source(core: Core, session: Session) -> str | None:
    """By whom words of strangers reach this session, its own bindings included: a session's name; None: by nobody.

    What a message brought stays until a person has looked at it: it may stand in files, facts and notes by now.
    """
    if session.spec is not None and find_untrusted(session.spec) is not None:
        return session.name
    if session.untrusted_by is not None:
        return session.untrusted_by
    for name in sorted(core.graph.all_upstreams(session.name)):
        upstream = core.state.by_name(name) if name in core.state.ids else None
        if upstream is None or upstream.spec is None:
            continue
        if find_untrusted(upstream.spec) is not None or upstream.untrusted_by is not None:
            return name
    return None


def find_third_leg(core: Core, session: Session) -> str | None:
    """Why a person is to be asked before this session runs, in words; None: it has two of the three at most."""
    spec = session.spec
    way_out = find_way_out(spec) if spec is not None else None
    # Nearly everybody.
    if spec is None or way_out is None:
        return None
    for member in _list_line(core, session):
        secrets = member.spec.secrets if member.spec is not None else ()
        # Who knows secrets and never heard strangers was told by nobody what to do with them.
        source = find_source(core, member) if secrets else None
        if source is not None:
            told = ", ".join(secrets if member is session else (f"{name} of {member.name}" for name in secrets))
            return f"what it reads came by way of {source}, which reads untrusted words; secrets: {told}; way out: {way_out}"
    return None


def _list_line(core: Core, session: Session) -> list[Session]:
    """Itself, then all from whom something reaches it, by files or by messages: what one of them knows can come along."""
    found: dict[str, Session] = {}
    ahead = [session.name]
    while ahead:
        name = ahead.pop(0)
        if name in found or name not in core.state.ids:
            continue
        found[name] = member = core.state.by_name(name)
        ahead += sorted(core.graph.upstreams.get(name, ()))
        if member.untrusted_by is not None:
            ahead.append(member.untrusted_by)
    return list(found.values())
