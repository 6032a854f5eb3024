"""The knowledge of a session and its origin, as `show` prints them: memory, to-do list, conversation, checkpoints,
conflicts, forks.
"""

from __future__ import annotations

from typing import Any

from wakeful.core.record.state import Session, State
from wakeful.views.times import show_time


def view_knowledge(session: Session) -> dict[str, Any]:
    """View the knowledge of a session that only the log contains, without its facts and hand-off."""
    conversation = session.knowledge.conversation
    return {
        "memory": session.knowledge.memory,
        "todo": [{"text": item.text, "status": item.status} for item in session.knowledge.todo],
        "conversation": {
            "messages": conversation.messages,
            "bytes": conversation.size_bytes,
            "summary": conversation.summary,
        },
        "checkpoints": [
            {"name": name, "seq": mark.seq, "at": show_time(mark.at), "author": mark.author, "note": mark.note}
            for name, mark in sorted(session.lineage.checkpoints.items(), key=lambda item: item[1].seq)
        ],
        "conflicts": [
            {
                "number": conflict.number,
                "key": conflict.key,
                "base": conflict.base,
                "ours": conflict.ours,
                "theirs": conflict.theirs,
                "fork": conflict.fork,
                "theirs_rationale": conflict.theirs_rationale,
            }
            for conflict in session.lineage.conflicts
        ],
        "origin": None
        if session.lineage.origin is None
        else {
            "session": session.lineage.origin.session,
            "name": session.lineage.origin.name,
            "seq": session.lineage.origin.seq,
            "hash": session.lineage.origin.hash,
        },
        "model": session.declaration.model,
        "workspace": session.lineage.workspace.folder if session.lineage.workspace is not None else None,
        "detached": list(session.lineage.detached),
    }


def view_forks(state: State, session: Session) -> list[dict[str, Any]]:
    """View the forks of a session, and their forks, as a tree, by their present names."""
    children: dict[str, list[Session]] = {}
    for one in state:
        if one.lineage.origin is not None:
            children.setdefault(one.lineage.origin.session, []).append(one)
    return _view_children(children, session) if session.id in children else []


def _view_children(children: dict[str, list[Session]], parent: Session) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "id": one.id,
            "at": one.lineage.origin.seq if one.lineage.origin is not None else 0,
            "seq": one.seq,
            "merged": parent.lineage.merges.get(one.id),
            "forks": _view_children(children, one),
        }
        for one in sorted(
            children.get(parent.id, ()),
            key=lambda child: (child.lineage.origin.seq if child.lineage.origin else 0, child.name),
        )
    ]
