"""The tool `skill`: reads the instructions of a skill, or another file of its folder, when the model needs them.

The daemon reads (api/routes/agent_work.py), since a skill need not be bound to the session, and hands out only what was
read with the agent: text that somebody changed since is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta

from wakeful.agents.contract import Tool
from wakeful.agents.daemon_client import DaemonLink
from wakeful.agents.tools.tool import Arguments, CheckedTool
from wakeful.core.spec.agent import Skill


class SkillArguments(Arguments):
    name: Annotated[str, Meta(min_length=1, description="the name of a skill")]
    file: Annotated[str, Meta(description="another file of the skill, by its path there; empty: its instructions")] = ""


class SkillTools:
    def __init__(self, link: DaemonLink, skills: Sequence[Skill]) -> None:
        self._link = link
        self._skills = skills

    def list_tools(self) -> Iterable[Tool]:
        if self._skills:
            yield CheckedTool(
                "skill", "Read the instructions of a skill, or another file of it.", SkillArguments, self._read
            )

    async def _read(self, given: SkillArguments, _: str) -> str:
        found = await self._link.look("/work/skill", {"name": given.name, "file": given.file or None})
        return str(found["text"])
