"""All tools together: every call that a model can write gets a result."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.agents.contract import ToolResult
from wakeful.agents.tools.bound_files import Bounds
from wakeful.agents.tools.fetch import FetchTool
from wakeful.agents.tools.knowledge_tools import SkillTools
from wakeful.agents.tools.result_pages import ResultPages
from wakeful.agents.tools.tool import ResultLimit
from wakeful.agents.tools.tool_set import DEFAULT_POLICIES, ToolBox, make_tools
from wakeful.client.async_client import DaemonClient
from wakeful.core.agents.turns import ToolCall
from wakeful.core.spec.agent import Skill, ToolPolicy


def make_box(root: Path, policies: dict[str, ToolPolicy] | None = None) -> ToolBox:
    link = DaemonClient(str(root / "no.sock"), "token", patience_seconds=0.05)
    skills = SkillTools(link, (Skill(name="style", description="How to write.", folder=str(root / "skills")),))
    return make_tools(
        Bounds.build(str(root), ["in/"], ["out/"]), policies or {}, link, session="desk", run_id="r1", more=(skills,)
    )


def use(box: ToolBox, name: str, arguments: str) -> tuple[str, bool]:
    result = asyncio.run(box.carry_out(ToolCall(id="1", name=name, arguments=arguments)))
    return result.text, result.is_error


def test_every_tool_has_a_plain_schema_and_a_policy(tmp_path: Path) -> None:
    """Each tool offers a valid object schema without references, and a name that providers accept."""
    box = make_box(tmp_path)
    # These tools are offered only if a spec declares them.
    assert set(box.tools) == set(DEFAULT_POLICIES) - {"shell", "fetch", "delegate"}
    for offer in (*box.offers, *(tool.offer for tool in FetchTool(("docs.example.org:443",)).list_tools())):
        jsonschema.Draft202012Validator.check_schema(offer.parameters)
        assert offer.parameters["type"] == "object" and "$ref" not in str(offer.parameters)
        assert offer.name.replace("_", "").isalnum() and len(offer.description) < 2_000


def test_policies_narrow_what_is_offered(tmp_path: Path) -> None:
    """A denied tool is neither offered nor carried out.

    A tool that asks a person is offered. An unknown tool is denied.
    """
    box = make_box(tmp_path, {"write": "deny", "send": "ask", "unknown": "allow"})
    assert "write" not in box.tools and "send" in box.tools
    assert (box.policy_of("write"), box.policy_of("send"), box.policy_of("read"), box.policy_of("unknown")) == (
        "deny",
        "ask",
        "allow",
        "deny",
    )
    words, is_error = use(box, "write", '{"path": "out/x", "content": "x"}')
    assert is_error and "write is not allowed in this session" in words and not (tmp_path / "out").exists()


def test_only_what_reads_files_is_a_look(tmp_path: Path) -> None:
    """A call that reaches the daemon, a program or a server is recorded before it begins."""
    box = make_box(tmp_path)
    assert {name for name in box.tools if box.is_look(name)} == {"read", "list", "search"}
    assert not box.is_look("no-such-tool")


def test_without_a_place_to_write_no_writing_is_offered(tmp_path: Path) -> None:
    """A session without outputs offers its agent no tool that writes."""
    box = make_tools(Bounds.build(str(tmp_path), ["in/"]), {}, DaemonClient("none"), session="desk", run_id="r1")
    assert "write" not in box.tools and "edit" not in box.tools


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("read", '{"path": ', "not JSON"),
        ("read", "[1]", "a JSON list"),
        ("read", "", "missing required field `path`; it takes path: string, [offset: integer], [limit: integer]"),
        ("read", '{"path": 3}', "Expected `str`, got `int`"),
        ("read", '{"path": "in/x", "lines": 3}', "unknown field `lines`"),
        ("read", '{"path": "in/x", "offset": 0}', "Expected `int` >= 1"),
        ("raed", "{}", "there is no tool 'raed'; did you mean read?"),
        ("x" * 5_000, "{}", "the tools are read, list"),
        ("shell", '{"line": "id"}', "shell is not allowed"),
        ("recall", "{}", "no daemon answers at"),
        ("read", '{"path": "in/none"}', "is bound, but does not exist"),
    ],
)  # fmt: skip
def test_what_a_model_gets_wrong_is_told(tmp_path: Path, name: str, arguments: str, expected: str) -> None:
    """Every mistake gives a result that says what was expected."""
    words, is_error = use(make_box(tmp_path), name, arguments)
    assert is_error and expected in words and len(words) < 2_000


NAMES = st.sampled_from(["path", "content", "old", "new", "text", "against", "regex"])
OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.dictionaries(NAMES, inner)
)


@given(
    name=st.sampled_from(["read", "list", "search", "write", "edit", "diff"]),
    arguments=st.text() | OBJECTS.map(json.dumps),
)
def test_nothing_a_model_can_write_raises(tmp_path_factory: pytest.TempPathFactory, name: str, arguments: str) -> None:
    """Random texts and random objects give results."""
    box = make_box(tmp_path_factory.getbasetemp())
    text, _ = use(box, name, arguments)
    assert text.encode()


def test_a_result_larger_than_its_model_takes_in_is_paged_to_its_end(tmp_path: Path) -> None:
    """`read` pages by its own offsets, any other tool by a file in the scratch folder.

    A very long line is paged too.
    """
    (tmp_path / "in").mkdir()
    (tmp_path / "scratch").mkdir()
    (tmp_path / "in" / "a.txt").write_text("".join(f"line {number}\n" for number in range(2_000)))
    bounds = Bounds.build(str(tmp_path), ["in/"], [], str(tmp_path / "scratch"))
    box = make_tools(bounds, {}, DaemonClient("none"), session="desk", run_id="r1", limit=ResultLimit(2_048))
    pages = list(read_pages(box, {"path": "in/a.txt"}))
    assert len(pages) > 5 and all(len(page.encode()) <= 2_048 for page in pages)
    assert [line for page in pages for line in page.splitlines() if line.startswith("line ")] == [
        f"line {number}" for number in range(2_000)
    ]
    found, _ = use(box, "search", json.dumps({"text": "line", "most": 200}))
    assert len(found.encode()) <= 2_048
    path, offset = re.findall(r"read (\S+) with offset (\d+)\]$", found)[0]
    rest = "\n".join(read_pages(box, {"path": path, "offset": int(offset)}))
    assert all(f"line {number}\n" in f"{found}\n{rest}\n" for number in range(199))
    long = asyncio.run(ResultPages(bounds, ResultLimit(2_048)).show(ToolResult("x" * 20_000)))
    path, offset = re.findall(r"read (\S+) with offset (\d+)\]$", long.text)[0]
    assert (
        sum(page.count("x" * 50) for page in (long.text, *read_pages(box, {"path": path, "offset": int(offset)})))
        == 400
    )


def read_pages(box: ToolBox, arguments: dict[str, object]) -> Iterator[str]:
    """Read all pages as a model does, with the offset that each page names."""
    while True:
        page, is_error = use(box, "read", json.dumps(arguments))
        assert not is_error, page
        yield page
        more = re.search(r"read on with offset (\d+)\]$", page)
        if more is None:
            return
        arguments = {**arguments, "offset": int(more[1])}
