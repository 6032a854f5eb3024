"""Rules of the folders that an agent works in, told when it first reads or writes there:
an AGENTS.md counts for the files that it stands above.

The daemon finds and quotes them (model_context/project_rules.py), since it knows which of them strangers could write.
Each is told once in a run, and again after the conversation was made shorter.
"""

from __future__ import annotations

from wakeful.agents.daemon_client import DaemonLink

_HEAD = "These rules of the project count for the files below them:"


class NestedRules:
    def __init__(self, link: DaemonLink) -> None:
        self._link = link
        self._asked: set[str] = set()
        self._told: set[str] = set()

    async def tell(self, folder: str) -> str:
        """The rules of folders from root to this one that were not told yet, as the first lines of a result.

        Empty if all were told.
        """
        if folder in self._asked:
            return ""
        self._asked.add(folder)
        found: dict[str, str] = await self._link.look("/work/rules", {"folder": folder})
        new = {path: text for path, text in found.items() if path not in self._told}
        self._told |= new.keys()
        # The first block stands first: a mark anywhere else in a result is a file's own word.
        return "\n\n".join((*new.values(), f"({_HEAD} {', '.join(new)})", "")) if new else ""

    def forget(self) -> None:
        self._asked.clear()
        self._told.clear()
