"""Rule 28: the writes of an agent through our tools are recorded file by file.

So a `both` binding distinguishes the agent's own writes from those of others.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from core.simulated_world import World
from core.spec_builders import read, session
from core.test_agent_runs import DOCS, boot_again, end, last, make_world, post, the
from wakeful.core.agents import steps as work
from wakeful.core.agents.turns import ToolCall, WroteFile
from wakeful.core.calls import call_types as calls
from wakeful.core.deciding.acting_agent import find_ambiguous_binding
from wakeful.core.record import events as ev
from wakeful.core.record.observations import AgentsRead
from wakeful.core.spec.agent import AgentSpec, McpServer
from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import Confinement, PromptRun, SessionSpec

BOTH = FileBinding(name="all", pattern="all/*", access="both")
OUT = FileBinding(name="out", pattern="out", access="write", wake=False)


def working(**keys: Any) -> SessionSpec:
    keys = {"run": PromptRun(prompt="Keep it.", retries=0), **keys}
    return session("docs", read("code.py"), BOTH, OUT, agent="docs", **keys)


def started(spec: SessionSpec | None = None, agent: AgentSpec = DOCS) -> World:
    world = make_world(spec or working(), agents=(agent,))
    # The process writes only through its tools: see `tell`.
    world.program = lambda world, process: {}
    world.write("all/page", "old")
    world.look()
    end(world)
    world.rest()
    world.write("code.py", "2")
    world.look()
    assert the(world).run is not None
    return world


def tell(
    world: World, path: str, base: str | None, new: str, call: str = "c1", *, is_done: bool = True, is_told: bool = True
) -> None:
    """Write a file as a tool does: record the call, write, record the return."""
    post(world, work.CallTool(call=ToolCall(id=call, name="write", arguments="{}")))
    if is_done:
        world.write(path, new)
    if is_told:
        post(
            world,
            work.ReturnTool(
                call=call, name="write", text="written", wrote=(WroteFile(path=path, base=base, digest=new),)
            ),
        )


def runs(world: World) -> int:
    world.look()
    return world.starts("docs")


def test_rule_28_what_tools_wrote_is_no_assumption_and_both_is_not_woken_by_it() -> None:
    """Rules 7, 15 and 28: after the run, seen and good are the version that its own writes left.

    Each path is on record.
    """
    world = started()
    before = world.starts("docs")
    tell(world, "all/page", "old", "half")
    world.look()
    tell(world, "all/page", "half", "whole", "c2")
    tell(world, "all/new", None, "made", "c3")
    end(world)
    finished = last(world, ev.RunFinished)
    assert (finished.assumed, finished.wrote) == (False, {"all/page": "whole", "all/new": "made"})
    assert finished.written.keys() == {"all"} and the(world).marks.good[BOTH.identity] == finished.written["all"]
    assert runs(world) == before
    world.write("all/page", "theirs")
    assert runs(world) == before + 1


@pytest.mark.parametrize(
    "hand", ["another path", "after ours", "before ours", "between ours", "removed ours", "ours and back"],
)  # fmt: skip
def test_rule_7_what_others_make_of_it_meanwhile_stays_owed(hand: str) -> None:
    """A change by others during the run causes one follow-up run. A second follow-up does not come."""
    world = started()
    before = world.starts("docs")
    if hand == "before ours":
        world.write("all/page", "theirs")
    tell(world, "all/page", "theirs" if hand == "before ours" else "old", "ours")
    match hand:
        case "another path":
            world.write("all/other", "theirs")
        case "after ours":
            world.write("all/page", "theirs")
        case "between ours":
            world.write("all/page", "theirs")
            tell(world, "all/page", "theirs", "ours again", "c2")
        case "removed ours":
            world.delete("all/page")
        case "ours and back":
            world.write("all/page", "old")
    end(world)
    assert runs(world) == before + 1 and last(world, ev.RunStarted).causes[0].binding == "all"
    end(world)
    assert runs(world) == before + 1


def test_rule_28_an_output_that_others_changed_is_not_what_the_run_wrote() -> None:
    """An output is not recorded as written if others changed it last, or if the run did not touch it."""
    world = started()
    tell(world, "out", None, "ours")
    end(world)
    assert last(world, ev.RunFinished).written == {"out": the(world).marks.good[OUT.identity]}
    for path in ("all/page", "out"):
        world.call(calls.Activate(name="docs"))
        world.look()
        tell(world, path, {"all/page": "old", "out": "theirs"}[path], "again")
        world.write("out", "theirs")
        end(world)
        assert "out" not in last(world, ev.RunFinished).written and not last(world, ev.RunFinished).assumed


def test_a_call_whose_effect_is_unknown_makes_no_exact_record() -> None:
    """A run is cancelled in the middle of a write.

    Outputs are then recorded as found; for `both` the write counts as one of others.
    """
    world = started()
    before = world.starts("docs")
    tell(world, "all/page", "old", "ours", is_told=False)
    world.call(calls.Cancel(name="docs"))
    end(world, exit_code=1)
    finished = last(world, ev.RunFinished)
    assert (finished.outcome, finished.assumed, finished.wrote) == (
        "cancelled",
        True,
        {},
    ) and "all" not in finished.written
    assert runs(world) == before + 1


@pytest.mark.parametrize("is_done", [True, False])
def test_a_crash_between_a_write_and_its_record_is_made_up_by_the_next_run(is_done: bool) -> None:
    """A lost run moves no mark. The next run begins with the current files, and no second run follows it."""
    world = started()
    before = world.starts("docs")
    tell(world, "all/page", "old", "ours", is_done=is_done, is_told=False)
    boot_again(world)
    world.recover()
    assert runs(world) == before + 1
    assert last(world, ev.RunFinished).outcome == "lost"
    tell(world, "out", None, "done", "c2")
    end(world)
    # Its output had not been looked at when it began. So it is an assumption that no other writer was there.
    finished = last(world, ev.RunFinished)
    assert (finished.outcome, finished.assumed, finished.wrote) == ("succeeded", True, {"out": "done"})
    assert runs(world) == before + 1


@pytest.mark.parametrize(
    ("agent", "spec", "words"),
    [
        (replace(DOCS, tools={"shell": "ask"}), working(), "has a shell"),
        (replace(DOCS, mcp=(McpServer(name="files", argv=("serve",)),)), working(), "the server files of agent docs is a program"),
        (AgentSpec(name="docs", acp=("claude",)), working(), "is an external program"),
        (DOCS, working(run=PromptRun(prompt="x", check=("make",))), "run.check is a program"),
        (replace(DOCS, tools={"shell": "allow"}), working(tools={"shell": "deny"}), None),
        (replace(DOCS, mcp=(McpServer(name="far", url="https://x"),)), working(), None),
        (replace(DOCS, tools={"shell": "allow"}), working(confinement=Confinement(level="strict")), None),
    ],
)  # fmt: skip
def test_both_is_for_those_whose_every_write_goes_through_us(
    agent: AgentSpec, spec: SessionSpec, words: str | None
) -> None:
    """A shell, a local MCP server, an external agent and a check write without our tools.

    With any of them a session with a `both` binding sleeps, and says why.
    """
    found = find_ambiguous_binding(spec, agent)
    assert (found is None) if words is None else (found is not None and words in found[1])
    world = make_world(spec, agents=(agent,))
    assert (world.hold("docs") is None) if words is None else (words in (world.hold("docs") or ""))


def test_with_a_shell_outputs_are_found_at_the_end_as_a_command_s_are() -> None:
    """They are marked as assumed. No path is recorded as written for certain."""
    shell = replace(DOCS, tools={"shell": "allow"})
    world = make_world(
        session("docs", read("code.py"), OUT, run=PromptRun(prompt="x", retries=0), agent="docs"), agents=(shell,)
    )
    world.write("out", "by the shell")
    end(world)
    finished = last(world, ev.RunFinished)
    assert finished.assumed and finished.wrote == {} and finished.written.keys() == {"out"}


def test_an_agent_that_is_given_a_shell_later_puts_a_session_of_both_to_sleep() -> None:
    """The session goes on when the agent has no shell any more."""
    world = started()
    end(world)
    world.observe(AgentsRead(agents={"docs": replace(DOCS, tools={"shell": "allow"})}))
    world.write("code.py", "3")
    before = runs(world)
    assert "has a shell" in (world.hold("docs") or "")
    world.observe(AgentsRead(agents={"docs": DOCS}))
    assert runs(world) == before + 1
