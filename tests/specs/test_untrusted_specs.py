"""Trust in specs: the label of a binding, the combination that is refused, and the other users who can write a file."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest

from wakeful.settings import read_settings
from wakeful.specs.file_ownership import find_others, judge_writers
from wakeful.specs.folder_reading import read_folder, read_text
from wakeful.specs.problem import RefusedSpec
from wakeful.specs.spec_builder import Surroundings

RUN = "objective: x\nrun: {command: ['true']}\n"


def read(text: str) -> object:
    return read_text(text.encode(), "f", "f.yaml", Surroundings("/project"))[0]


def refusal(text: str) -> str:
    with pytest.raises(RefusedSpec) as found:
        read(text)
    return str(found.value)


@pytest.mark.parametrize("kind", ["file: mail/*.txt", "commits: src", "message: any", "probe: [fetch]"])
def test_what_brings_words_of_strangers_can_say_so(kind: str) -> None:
    spec = read(f"{RUN}bindings: {{m: {{{kind}, trust: untrusted}}}}\n")
    assert [binding.name for binding in spec.bindings if binding.is_untrusted] == ["m"]


def test_nothing_else_is_a_label() -> None:
    assert "trust" in refusal(f"{RUN}bindings: {{m: {{file: a, trust: yes}}}}\n")
    assert "trust" in refusal(f"{RUN}bindings: {{m: {{every: 5m, trust: untrusted}}}}\n")


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("network: true", "network"),
        ("network: ['api.example.com:443']", "network"),
        ("isolation: none", "isolation: none"),
        ("allow: {write: [/srv/share]}", "writes /srv/share"),
    ],
)
def test_untrusted_input_secrets_and_a_way_out_are_refused_together(way: str, words: str) -> None:
    """The refusal has the place and names all three. Any two of them are accepted."""
    legs = ["bindings: {mail: {file: mail.txt, trust: untrusted}}", "secrets: [token]", way]
    told = refusal(RUN + "\n".join(legs) + "\n")
    assert told == (
        f"f.yaml:3:42: untrusted input (mail), secrets (token) and a way out ({words}) do not go together; drop one of them, or part the session in two"
    )
    # An unconfined run can read every secret, listed or not.
    for left in (0, 2) if words == "isolation: none" else range(3):
        read(RUN + "\n".join(leg for number, leg in enumerate(legs) if number != left) + "\n")


def test_who_fetches_pages_hears_strangers_and_has_a_way_out() -> None:
    """With a secret such a session is refused, without one it is accepted."""
    told = refusal(f"{RUN}secrets: [token]\nfetch: [docs.example.org]\n")
    assert (
        told
        == "f.yaml:4:8: untrusted input (fetch), secrets (token) and a way out (fetch) do not go together; drop one of them, or part the session in two"
    )
    assert read(f"{RUN}fetch: [Docs.Example.org, '*.example.com:8443', '[::1]:80']\n").fetch == (
        "docs.example.org:443",
        "*.example.com:8443",
        "[::1]:80",
    )
    assert read(f"{RUN}fetch: true\n").fetch == ("*:443", "*:80") and read(f"{RUN}fetch: false\n").fetch == ()
    for wrong in ("https://docs.example.org", "docs.example.org/a", "a b", "host:0", "host:70000", "a*b", "*"):
        assert "is not a host" in refusal(f"{RUN}fetch: ['{wrong}']\n")


@pytest.mark.parametrize(
    ("read_by", "words"),
    [
        ("allow: {read: [/home/ada/notes]}", "private reads (/home/ada/notes, by allow.read)"),
        ("allow: {read: [/project/.ssh/id]}", "private reads (/project/.ssh/id, by allow.read)"),
        ("allow: {read: [../other]}", "private reads (/other, by allow.read)"),
        (
            "bindings: {notes: {file: '/home/ada/notes/*.md', wake: false}}",
            "private reads (/home/ada/notes, by binding notes)",
        ),
        ("bindings: {all: {file: '/home/ada/**/*.md', wake: false}}", "private reads (/home/ada, by binding all)"),
        (
            "bindings: {code: {commits: src, repo: /home/ada/work}}",
            "private reads (/home/ada/work/src, by binding code)",
        ),
        ("bindings: {p: {probe: [cat, .aws/credentials]}}", "private reads (/project/.aws/credentials, by probe p)"),
        ("run: {command: [cat, .netrc]}", "private reads (/project/.netrc, by command)"),
        ("run: {script: 'cat < .ssh/id'}", "private reads (/project/.ssh/id, by script)"),
        ("run: {command: ['true'], check: [cat, .netrc]}", "private reads (/project/.netrc, by check)"),
        ("isolation: none", "private reads (everything, by isolation: none)"),
    ],
)
def test_every_granted_read_counts_and_not_secrets_alone(read_by: str, words: str) -> None:
    """The session also has untrusted input and the network. Without one of these it is accepted."""
    keys = {"run": "run: {command: ['true']}", "bindings": "bindings: {}", "network": "network: true"}
    keys |= {read_by.partition(":")[0]: read_by}
    mail = "mail: {file: mail.txt, trust: untrusted}"
    label = keys | {"bindings": keys["bindings"].replace("{", f"{{{mail}, ", 1).replace(", }", "}")}
    assert words in refusal("objective: x\n" + "\n".join(label.values()) + "\n")
    read("objective: x\n" + "\n".join(keys.values()) + "\n")
    if "isolation" not in read_by:
        read("objective: x\n" + "\n".join(line for key, line in label.items() if key != "network") + "\n")


@pytest.mark.parametrize(
    "read_by",
    [
        "allow: {read: [data]}",
        "allow: {read: [/usr/share/dict]}",
        "run: {command: [cat, notes.txt]}",
        "bindings: {rules: {file: '*.md', wake: false}}",
    ],
)
def test_what_lies_in_the_project_or_belongs_to_the_system_is_not_private(read_by: str) -> None:
    bindings = "mail: {file: /var/mail/ada, trust: untrusted}"
    text = (
        f"objective: x\nnetwork: true\n{read_by}\n"
        if "bindings" in read_by
        else f"objective: x\nnetwork: true\nbindings: {{{bindings}}}\n{read_by}\n"
    )
    read(
        text.replace("bindings: {rules", f"bindings: {{{bindings}, rules")
        + ("" if "run" in read_by else "run: {command: ['true']}\n")
    )


def test_a_write_outside_of_root_is_a_way_out_and_one_inside_is_not() -> None:
    legs = (
        "secrets: [token]\nbindings: {{mail: {{file: mail.txt, trust: untrusted}}, o: {{file: {}, access: write}}}}\n"
    )
    assert "writes ../out.txt" in refusal(RUN + legs.format("../out.txt"))
    read(RUN + legs.format("out.txt"))


def test_pinning_everything_is_a_setting(tmp_path: Path) -> None:
    (tmp_path / "wakeful.yaml").write_text("trust: pinned\n")
    assert read_settings(tmp_path / "sessions.d", {})[0].trust == "pinned"
    (tmp_path / "wakeful.yaml").write_text("trust: nobody\n")
    assert "trust" in str(read_settings(tmp_path / "sessions.d", {})[2][0])


# -- other writers ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "one" / "sessions.d"
    made.mkdir(parents=True)
    for one in (tmp_path, tmp_path / "one", made):
        one.chmod(0o755)
    return made


def test_a_folder_of_ones_own_is_nobody_elses(folder: Path) -> None:
    """/tmp above it is sticky: other users cannot rename the folder there."""
    assert find_others(str(folder)) is None


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_a_folder_that_everybody_can_write_says_so_and_what_mends_it(folder: Path, mode: int) -> None:
    """The sticky bit prevents others from removing specs, not from adding some."""
    folder.chmod(mode)
    assert find_others(str(folder)) == f"everybody can write {folder} (chmod o-w {folder})"


def test_a_folder_in_a_folder_that_others_can_rename_in_is_theirs(folder: Path) -> None:
    folder.parent.chmod(0o777)
    assert f"everybody can write {folder.parent}" in (find_others(str(folder)) or "")
    folder.parent.chmod(0o1777)
    assert find_others(str(folder)) is None


def test_a_link_is_judged_by_where_it_leads(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "open"
    target.mkdir()
    target.chmod(0o777)
    (target / "spec.yaml").write_text(RUN)
    (folder / "linked.yaml").symlink_to(target / "spec.yaml")
    assert read_folder(folder).files["linked.yaml"].others == f"everybody can write {target} (chmod o-w {target})"


def test_a_mode_that_changes_alone_is_noticed(folder: Path) -> None:
    spec = folder / "one.yaml"
    spec.write_text(RUN)
    first = read_folder(folder)
    assert first.files["one.yaml"].others is None
    spec.chmod(0o666)
    second = read_folder(folder, previous=first)
    assert "everybody can write" in (second.files["one.yaml"].others or "")
    spec.chmod(0o644)
    assert read_folder(folder, previous=second).files["one.yaml"].others is None


def test_what_belongs_to_another_user_is_theirs(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(folder, 65534, 0)
    assert find_others(str(folder)) == f"{folder} belongs to {pwd.getpwuid(65534).pw_name} (chown it to yourself)"


def test_a_group_of_others_can_write_and_a_group_of_ones_own_is_oneself(folder: Path) -> None:
    """Most systems give every account its own group, and a umask that lets the group write."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to groups")
    folder.chmod(0o775)
    assert find_others(str(folder)) is None
    other = next(one for one in grp.getgrall() if one.gr_gid != 0)
    os.chown(folder, 0, other.gr_gid)
    assert judge_writers(str(folder), folder.stat()) == f"group {other.gr_name} can write {folder} (chmod g-w {folder})"
