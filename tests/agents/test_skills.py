"""Skills through a real daemon: the model gets names and descriptions, and reads the rest when it needs it."""

from __future__ import annotations

from agents.provider import Call, Hold, Provider, Say, Turns
from agents.test_agent_runs import KEY, declare, results
from e2e.box import Box
from wait_conditions import eventually

STYLE = "---\nname: style\ndescription: How to write a page.\n---\nBe brief.\nSee references/words.md.\n"


def test_a_skill_is_listed_and_read_when_it_is_needed(box: Box, provider: Provider) -> None:
    """A skill can be outside of the bindings.

    A text that changed during a run is not handed out in that run. It counts from the next run on. `check` names a bad
    skill.
    """
    reads = [
        {"name": "style"},
        {"name": "style", "file": "references/words.md"},
        {"name": "stile"},
        {"name": "style", "file": "../../wakeful.yaml"},
    ]
    provider.play(
        [
            *(Call("skill", arguments) for arguments in reads),
            Hold("changed", Call("skill", {"name": "style"})),
            Say("done"),
        ]
    )
    skill = box.write("skills/style/SKILL.md", STYLE)
    box.write("skills/style/references/words.md", "Say: wake.\n")
    declare(box, provider, agent="skills: [skills]\n")
    box.start(env=KEY)
    eventually(lambda: len(provider.requests) == 5)
    system = provider.requests[0].system
    assert "# Your skills" in system and "\n- style: How to write a page.\n" in system and "Be brief." not in system
    brief, words, unknown, outside = results(provider.requests[4])
    assert (
        brief.content
        == "Be brief.\nSee references/words.md.\n\n(Other files of this skill, which skill reads by their path: references/words.md)"
    )
    assert words.content == "Say: wake.\n"
    assert unknown.is_error and "there is no skill 'stile'; the skills are style" in unknown.content
    assert outside.is_error and "its files are SKILL.md, references/words.md" in outside.content
    skill.write_text(STYLE.replace("brief", "long"))
    provider.release("changed")
    # The run could write to the skill, so the changed text needs trust, as the agent's own file does.
    row = eventually(lambda: (found := box.row("docs"))["state"] == "sleeping" and found)
    assert row["reason"].startswith("needs trust: skills/style/SKILL.md changed"), row["reason"]
    changed = results(provider.requests[-1])[-1]
    assert changed.is_error and "was changed since this run began" in changed.content
    assert "skills: style" in box.ask("trust", "docs", "--yes")
    assert "- style: How to write a page." in box.ask("context", "docs")
    # A new skill takes effect by itself, and a bad one is named with its place.
    box.write("skills/tests/SKILL.md", "---\nname: how-to-test\ndescription: How to test.\n---\nRun them.\n")
    eventually(lambda: "how-to-test" in box.ask("context", "docs"))
    provider.play(Turns((Call("skill", {"name": "style"}), Say("done")), by="message"))
    box.ask("activate", "docs", "--wait")
    assert results(provider.requests[-1])[-1].content.startswith("Be long.")
    box.write("skills/tests/SKILL.md", "---\nname: how-to-test\n---\nRun them.\n")
    bad = box.run("check")
    assert (
        bad.returncode == 1
        and "docs.yaml:5:10: skills/tests/SKILL.md:2:1: description is missing" in bad.stdout + bad.stderr
    )
    # While a file is bad, its last good version counts. Without the tool, no skill is listed.
    assert "how-to-test" in box.ask("context", "docs")
    box.write("skills/tests/SKILL.md", "---\nname: how-to-test\ndescription: How to test.\n---\nRun them.\n")
    declare(box, provider, agent="skills: [skills]\n", tools="{skill: deny}")
    eventually(lambda: "how-to-test" not in box.ask("context", "docs"))
