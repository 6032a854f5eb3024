"""Skills of an agent: folders of instructions as files declare them, their refusals, and when they are read again."""

from pathlib import Path

import pytest

from specs.test_agents import judge, put, read
from wakeful.core.spec.agent import Skill
from wakeful.specs import folder_reading, prompt_file
from wakeful.specs.skills import strip_front_matter

STYLE = "---\nname: style\ndescription: >\n  How to write\n  a page.\nlicense: MIT\nmetadata: {author: ada}\n---\n\nBe brief.\n"
AGENT = "model: openai:a\nskills: [skills]\n"


def write(folder: Path, path: str, text: str = STYLE) -> Path:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


def skills(folder: Path, text: str = AGENT) -> tuple[Skill, ...]:
    found = judge(folder, text)
    assert found.agent is not None, found.problems
    return found.agent.skills


def test_a_folder_of_skills_is_read_with_all_its_files(tmp_path: Path) -> None:
    """Unknown keys are ignored. Hidden files and caches of programs are not part of a skill."""
    for path in (
        "skills/style/SKILL.md",
        "skills/style/references/words.md",
        "skills/style/.hidden",
        "skills/style/__pycache__/x.pyc",
        "skills/README.md",
    ):
        write(tmp_path, path)
    write(tmp_path, "skills/tests/SKILL.md", STYLE.replace("style", "how-to-test"))
    style, tests = skills(tmp_path)
    assert (style.name, style.description, style.folder) == (
        "style",
        "How to write a page.",
        str(tmp_path / "skills" / "style"),
    )
    assert list(style.files) == ["SKILL.md", "references/words.md"] and tests.name == "how-to-test"
    assert skills(tmp_path, "model: openai:a\nskills: [skills/style]\n") == (style,)
    assert (
        strip_front_matter(STYLE.encode())
        == strip_front_matter(b"\xef\xbb\xbf" + STYLE.replace("\n", "\r\n").encode())
        == "Be brief."
    )


WRONG = [
    ("Be brief.\n", "skills/style/SKILL.md:1:1: it does not begin with a line ---"),
    (
        "---\nname: style\ndescription: x\nBe brief.\n",
        "skills/style/SKILL.md:1:1: it does not begin with a line --- and end its keys with another",
    ),
    (
        "---\ndescription: x\n---\nBe brief.\n",
        "skills/style/SKILL.md:2:1: name is missing; write 1 to 64 small letters",
    ),
    ("---\nname: My Style\ndescription: x\n---\nBe brief.\n", "skills/style/SKILL.md:2:1: name is My Style; write"),
    ("---\nname: style\n---\nBe brief.\n", "skills/style/SKILL.md:2:1: description is missing; say in one line"),
    ("---\nname: style\ndescription: [a]\n---\nBe brief.\n", "skills/style/SKILL.md:2:1: description is missing"),
    (
        f"---\nname: style\ndescription: {'x' * 1025}\n---\nBe brief.\n",
        "description has 1,025 characters, and at most 1,024 are told",
    ),
    ("---\nname: style\ndescription: Use when: always\n---\nBe brief.\n", "skills/style/SKILL.md:3:"),
    ("---\nname: style\nname: other\ndescription: x\n---\nBe brief.\n", "skills/style/SKILL.md:3:1: "),
    ("---\nname: style\ndescription: x\n---\n", "skills/style/SKILL.md:1:1: it has no instructions"),
    ("x" * 300_000, "'skills/style/SKILL.md' has more than 256 KB"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_a_bad_skill_is_named_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    """The message has the place in the agent's file, the place in the skill, and the remedy."""
    write(tmp_path, "skills/style/SKILL.md", text)
    found = judge(tmp_path, AGENT)
    assert found.agent is None
    assert str(found.problems[0]).startswith("sessions.d/agents/a.yaml:2:10: ") and words in str(found.problems[0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: openai:a\nskills: [none]\n", "2:10: there is no folder 'none'; it starts from "),
        ("model: openai:a\nskills: [empty]\n", "2:10: 'empty' holds no SKILL.md, and no folder in it does"),
        ("model: openai:a\nskills: [../out]\n", "2:10: '../out' lies outside of the project"),
        ("model: openai:a\nskills: [way-out]\n", "2:10: 'way-out' lies outside of the project"),
        ("model: openai:a\nskills: [skills, copy]\n", "2:10: two skills are called 'style': in "),
        ("acp: [gemini, --acp]\nskills: [skills]\n", "2:1: skills is about a model, and acp brings its own; remove it"),
    ],
)
def test_a_list_of_skills_that_cannot_be_is_refused(text: str, words: str, tmp_path: Path) -> None:
    root = tmp_path / "project"
    for path in (
        "project/skills/style/SKILL.md",
        "project/copy/style/SKILL.md",
        "out/style/SKILL.md",
        "project/empty/README.md",
    ):
        write(tmp_path, path)
    (root / "way-out").symlink_to(tmp_path / "out")
    found = judge(root, text)
    assert found.agent is None and any(words in str(one) for one in found.problems), found.problems


def test_links_in_a_skill_are_left_out_and_told(tmp_path: Path) -> None:
    """A file outside the skill's folder was not written for this skill."""
    write(tmp_path, "skills/style/SKILL.md")
    (tmp_path / "skills" / "style" / "passwd").symlink_to("/etc/passwd")
    found = judge(tmp_path, AGENT)
    assert found.agent is not None and list(found.agent.skills[0].files) == ["SKILL.md"]
    assert ["passwd is a symbolic link and is left out" in str(one) for one in found.warnings] == [True]
    (tmp_path / "skills" / "style" / "SKILL.md").unlink()
    (tmp_path / "skills" / "style" / "SKILL.md").symlink_to("/etc/passwd")
    assert "symbolic links are not followed here" in str(judge(tmp_path, AGENT).problems[0])


@pytest.mark.parametrize("path", ["skills/style/SKILL.md", "skills/style/references/new.md", "skills/other/SKILL.md"])
def test_a_skill_is_read_again_when_one_of_its_files_changes_or_comes(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's own file did not change. Without a change the value is the same object."""
    # Otherwise files written in the last two seconds are always read again, and the test would show nothing.
    monkeypatch.setattr(folder_reading, "RACY_NANOSECONDS", 0)
    monkeypatch.setattr(prompt_file, "RACY_NANOSECONDS", 0)
    write(tmp_path, "skills/style/SKILL.md")
    write(tmp_path, "skills/style/references/old.md")
    put(tmp_path, "agents/a", AGENT)
    first = read(tmp_path)
    assert read(tmp_path, first).agents["a"] is first.agents["a"]
    write(tmp_path, path, STYLE.replace("style", "other") if "other" in path else STYLE + "More.\n")
    second = read(tmp_path, first)
    assert first.agents["a"].skills != second.agents["a"].skills
    assert set(second.skill_folders) >= {
        str(tmp_path / "skills"),
        str(tmp_path / "skills" / "style"),
        str(tmp_path / "skills" / "style" / "references"),
    }
