"""The refusal of a spec says where the mistake is, what was found, what was expected and what to do.

One row is one mistake.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.errors import SpecError
from wakeful.specs.folder_reading import read_text
from wakeful.specs.models import BINDING_MODELS
from wakeful.specs.problem import RefusedSpec
from wakeful.specs.spec_builder import Surroundings

PROJECT = Surroundings("/project", "Europe/Berlin")
KINDS = list(BINDING_MODELS)


def refusal(text: str, around: Surroundings = PROJECT) -> str:
    with pytest.raises(RefusedSpec) as caught:
        read_text(text.encode(), "nightly", "f.yaml", around)
    return str(caught.value)


def warnings(text: str) -> list[str]:
    return [str(warning) for warning in read_text(text.encode(), "nightly", "f.yaml", PROJECT)[1]]


KEYS = [
    ("objectiv: x", "1:1: unknown key 'objectiv' in this session; did you mean 'objective'?"),
    ("tag: x", "1:1: unknown key 'tag' in this session; did you mean 'tags'?"),
    ("Priority: 3", "1:1: unknown key 'Priority' in this session; did you mean 'priority'?"),
    ("command: [x]", "1:1: unknown key 'command' in this session; it belongs under run"),
    (
        "file: x",
        "1:1: unknown key 'file' in this session; it belongs in a binding, such as bindings: {source: {file: …}}",
    ),
    (
        "xyzzy: 1",
        "1:1: unknown key 'xyzzy' in this session; expected one of agent, objective, priority, tags, enabled, root, bindings,"
        " when, pace, window, timezone, first, run, conversation, people, retention, budget, approve, ask_timeout, network, fetch, secrets, tools, isolation, allow, notify, for_each, concurrency",
    ),
    ("run: {comand: [a]}", "1:7: unknown key 'comand' in run; did you mean 'command'?"),
    (
        "run: {command: [a], isolation: strict}",
        "1:21: unknown key 'isolation' in run; it is a key of the session: move it out of run",
    ),
    ("concurrency: {pol: gpu}", "1:15: unknown key 'pol' in concurrency; did you mean 'pool'?"),
]

VALUES = [
    ("priority: 200", "1:11: priority is 200; expected at most 100"),
    ("priority: high", "1:11: priority: 'high' is not a whole number"),
    ("priority: [1]", "1:11: priority: expected a whole number, found a list"),
    ("enabled: maybe", "1:10: enabled: 'maybe' is neither true nor false"),
    ("tags: [a b]", "1:7: tags: expected a list of words such as [hr, monthly]: letters, digits and . _ - / : + @"),
    ("objective: ' '", "1:12: objective: empty text; write something, or delete the line"),
    ("first: adpot", "1:8: first is 'adpot'; expected run or adopt; did you mean 'adopt'?"),
    ("first: {a: b}", "1:8: 'first' needs run or adopt, found keys and values"),
    ("when: sometimes", "1:7: when is 'sometimes'; expected any, all or changed"),
    (
        "pace: soon",
        "1:7: pace: 'soon' is not a duration; write one number and its unit, such as 500ms, 30s, 5m, 2h or 7d",
    ),
    ("budget: 5", "1:9: 'budget' needs keys and values, found '5'; write {key: value}"),
    ("budget: {week: {runs: 5}}", "1:10: unknown key 'week' in budget; expected one of run, hour, day, month"),
    ("budget: {run: {runs: 5}}", "1:16: unknown key 'runs' in run; expected one of wall, cpu, written, tokens, usd"),
    ("budget: {hour: {runs: 0}}", "1:23: runs is 0; expected at least 1"),
    ("budget: {day: {usd: free}}", "1:21: usd: 'free' is not an amount of money; write a number above 0 such as 0.50"),
    ("budget: {day: {usd: 0}}", "1:21: usd: '0' is not an amount of money; write a number above 0 such as 0.50"),
    ("budget: {run: {wall: 0s}}", "1:22: wall: 0 is too short here; write a duration such as 30s or 5m"),
    (
        "budget: {run: {written: lots}}",
        "1:25: written: 'lots' is not a size; write one number and its unit, such as 64KB, 10MB or 1GB",
    ),
    ("approve: always", "1:10: approve is 'always'; expected before_run"),
    ("root: ''", "1:7: root: empty path; name a folder, or delete the line"),
    ("window: 8-20", "1:9: window: '8-20' is not a window; write hours such as \"08:00-20:00\""),
    (
        "window: 25:00-26:00",
        "1:9: window: '25:00-26:00' has a time that does not exist; write hours such as \"08:00-20:00\"",
    ),
    ("window: 08:00-08:00", "1:9: window: '08:00-08:00' is empty; delete it if the session may always run"),
    ("timezone: Mars/Base", "1:11: time zone 'Mars/Base' is not known; write a name such as Asia/Shanghai or UTC"),
    ("bindings: [a]", "1:11: 'bindings' needs keys and values, found a list; write {key: value}"),
    ("run: x", "1:6: 'run' needs keys and values, found 'x'; write {key: value}"),
    (
        "run: {command: python3 x.py --a 'b c'}",
        '1:16: command: a command is a list of words, never a shell string; write [python3, x.py, --a, "b c"], or use script',
    ),
    (
        "run: {command: [a, {b: c}]}",
        "1:16: command: every word of a command is text; put quotes around one that holds : or {, or use script",
    ),
    ("run: {command: []}", "1:16: command: expected a list of words such as [python3, report.py], or use script"),
    ("run: {command: [a], script: b}", "1:21: run has a command and a script; keep one of them"),
    ("agent: a\nrun: {command: [a], prompt: b}", "2:21: run has a command and a prompt; keep one of them"),
    (
        "run: {prompt: b}",
        "1:7: a prompt is put to an agent, and this session has none; add agent: NAME, declared in agents/NAME.yaml",
    ),
    ("agent: a\nrun: {prompt: ''}", "2:15: prompt: empty text; write something, or delete the line"),
    ("tools: {raed: ask}", "1:9: there is no tool 'raed'; did you mean 'read'?"),
    ("tools: {read: yes}", "1:15: read is 'yes'; expected allow, ask or deny"),
    (
        "tools: {'mcp:': ask}",
        "1:9: 'mcp:' names no tool of a server; write mcp:SERVER for all of them, or mcp:SERVER/TOOL",
    ),
    ("run: {timeout: 5m}", "1:1: run has neither a command, a script nor a prompt; add one"),
    ("run: {command: [a], timeout: 0}", "1:30: timeout: 0 is too short here; write a duration such as 30s or 5m"),
    (
        "secrets: [../etc]",
        "1:10: secrets: expected a list of names such as [gh-token, DB_PASSWORD]: each begins with a letter and goes on with letters, digits and _ . -",
    ),
    (
        "secrets: [gh-token, GH_TOKEN]",
        "1:10: secrets: 'gh-token' and 'GH_TOKEN' would be one variable; rename one of the two",
    ),
    ("secret: [gh-token]", "1:1: unknown key 'secret' in this session; did you mean 'secrets'?"),
    (
        "network: 443",
        "1:10: network: '443' is not an address; write HOST:PORT such as api.example.com:443, or true for any",
    ),
    (
        "network: [':99999']",
        "1:10: network: ':99999' is not an address; write HOST:PORT such as api.example.com:443, or true for any",
    ),
    (
        "network: ['a:99999']",
        "1:10: network: 'a:99999' is not an address; write HOST:PORT such as api.example.com:443, or true for any",
    ),
    ("isolation: off", "1:12: isolation is 'off'; expected strict, standard, observe or none"),
    (
        "allow: {write: ['/srv/x/*']}",
        "1:16: write: '/srv/x/*' is a pattern; name the folder, which means everything below it",
    ),
    ("allow: {read: {a: b}}", "1:15: read: expected a list of files and folders such as [~/.cache/tool, /opt/data]"),
    ("allow: {raed: [a]}", "1:9: unknown key 'raed' in allow; did you mean 'read'?"),
    (
        "run: {command: [a], limits: {memory: 10}}",
        "1:38: memory: '10' is not a size; write one number and its unit, such as 64KB, 10MB or 1GB",
    ),
    ("run: {command: [a], limits: {files: 3}}", "1:37: files is 3; expected at least 16"),
    ("run: {command: [a], retries: -1}", "1:30: retries is -1; expected at least 0"),
    ("run: {command: [a], env: {WAKEFUL_X: 1}}", "1:26: env: 'WAKEFUL_X' belongs to wakeful; choose another name"),
    (
        "run: {command: [a], env: {a-b: 1}}",
        "1:26: env: 'a-b' cannot be a variable; use letters, digits and _, no digit first",
    ),
]

# Each stands after `bindings:\n  code: `, so it begins in column 9 of line 2.
BINDINGS = [
    ("{commits: src/, brnach: main}", "2:25: unknown key 'brnach' in binding 'code'; did you mean 'branch'?"),
    ("{fil: a}", "2:10: unknown key 'fil' in binding 'code'; did you mean 'file'?"),
    (
        "{file: a, branch: main}",
        "2:19: 'branch' belongs to commits bindings, and binding 'code' is of kind file; remove it",
    ),
    (
        "{every: 1h, timezone: UTC}",
        "2:21: 'timezone' belongs to cron bindings, and binding 'code' is of kind every; remove it",
    ),
    (
        "{cron: '* * * * *', exclude: a}",
        "2:29: 'exclude' belongs to file bindings, and binding 'code' is of kind cron; remove it",
    ),
    ("{file: a, cron: '* * * * *'}", "2:9: binding 'code' has 2 kinds (file, cron); split it into one binding each"),
    (
        "{}",
        f"2:9: binding 'code' has no kind; add one of {', '.join(KINDS[:-1])} or {KINDS[-1]}",
    ),
    (
        "{wake: true}",
        f"2:9: binding 'code' has no kind; add one of {', '.join(KINDS[:-1])} or {KINDS[-1]}",
    ),
    ("a.csv", "2:9: binding 'code' is 'a.csv'; expected a kind and its value, such as {file: \"data/*.csv\"}"),
    ("{file: ''}", "2:16: file: '' is not a path pattern: expected a path such as data/*.csv"),
    ("{file: [a, b]}", "2:16: file: expected a path such as data/*.csv, found a list"),
    (
        "{file: '**/../x'}",
        "2:16: file: pattern '**/../x': '..' after a wildcard has no fixed meaning; write the folder it leads to",
    ),
    ("{file: a, access: wriet}", "2:27: access is 'wriet'; expected read, write or both; did you mean 'write'?"),
    (
        "{commits: src, line: all}",
        "2:30: line says which commits get a run of their own; add each_commit: true, or remove line",
    ),
    ("{file: a, settle: 5s, settle_max: 1s}", "2:43: settle_max (1s) is shorter than settle (5s); make it longer"),
    (
        "{commits: src, branch: -x}",
        "2:32: branch: branch '-x' begins with '-', which git takes for an option; name the branch itself",
    ),
    ("{commits: src, branch: a b}", "2:32: branch: 'a b' cannot be a branch; write a name such as main or origin/main"),
    (
        "{commits: ../x}",
        "2:19: commits: '../x' does not lie inside the repository; write a path such as src/, or . for all of it",
    ),
    (
        "{cron: '61 * * * *'}",
        "2:16: cron expression '61 * * * *': bad minute; expected five fields, such as \"0 6 1 * *\"",
    ),
    (
        "{cron: '* * * * *', timezone: Mars/Base}",
        "2:39: time zone 'Mars/Base' is not known; write a name such as Asia/Shanghai or UTC",
    ),
    ("{every: 0}", "2:17: every: a period shorter than 100ms is refused; write one such as 30s or 5m"),
    (
        "{every: 1h30m}",
        "2:17: every: '1h30m' is not a duration; write one number and its unit, such as 500ms, 30s, 5m, 2h or 7d",
    ),
    (
        "{every: 1h, catch_up: all, overlap: skip}",
        "2:31: catch_up: all gives every slot its run, and overlap: skip takes it away again; choose one of them",
    ),
    (
        "{cron: '0 * * * *', catch_up: all, overlap: replace}",
        "2:39: catch_up: all gives every slot its run, and overlap: replace takes it away again; choose one of them",
    ),
    ("{message: all}", "2:19: message is 'all'; expected any"),
    ("{session: nightly}", "2:19: a session cannot wait for itself; name another, or remove the binding"),
    ("{probe: psql -c x}", "2:17: probe: a command is a list of words, never a shell string; write [psql, -c, x]"),
    (
        "{service: localhost}",
        "2:19: service: 'localhost' is not a service; write tcp://HOST:PORT, http://…, or mcp:NAME for a server of its agent",
    ),
    (
        "{service: 'mcp:github'}",
        "2:19: mcp:github is a server of the session's agent, and this session has none; add agent: NAME",
    ),
    (
        "{service: 'tcp://h:1', wake: true}",
        "2:38: a service is a condition and wakes nothing; remove wake, or use a probe",
    ),
]

NAMES = [
    ("bindings:\n  spec: {file: a}", "2:3: 'spec' is a name that wakeful gives itself; choose another"),
    ("bindings:\n  mailbox: {file: a}", "2:3: 'mailbox' is a name that wakeful gives itself; choose another"),
    (
        "bindings:\n  1a: {file: a}",
        "2:3: '1a' cannot name a binding, because a run finds it as $WAKEFUL_BINDING_<NAME>; use letters, digits, - and _,"
        " a letter first",
    ),
    (
        "bindings:\n  a-b: {file: a}\n  a_b: {file: b}",
        "3:3: bindings 'a-b' and 'a_b' would both be $WAKEFUL_BINDING_A_B; rename one",
    ),
    (
        "bindings:\n  message: {file: a}\nrun: {command: [x]}",
        "2:3: 'message' names the mailbox that every session with a run has; choose another",
    ),
    (
        "agent: '-x'",
        "1:8: agent: '-x' cannot be a name; use letters, digits and - _ . @, with / between folders, no - or . first",
    ),
]


@pytest.mark.parametrize(("text", "words"), KEYS + VALUES + NAMES)
def test_a_mistake_is_named_where_it_stands(text: str, words: str) -> None:
    """Each mistake in a session gets its line, its column and the remedy."""
    assert refusal(text) == f"f.yaml:{words}"


@pytest.mark.parametrize(("binding", "words"), BINDINGS)
def test_a_mistake_in_a_binding_is_named_where_it_stands(binding: str, words: str) -> None:
    """Each mistake in a binding gets its line, its column and the remedy."""
    assert refusal(f"bindings:\n  code: {binding}") == f"f.yaml:{words}"


LATER = [
    "hosts: [big]",
]  # fmt: skip


@pytest.mark.parametrize("text", LATER)
def test_a_key_of_a_later_version_is_answered_not_yet(text: str) -> None:
    """A key of a later version is never accepted silently, and never called unknown."""
    words = refusal(text)
    assert ": not yet: " in words
    assert "unknown" not in words


def test_what_is_read_and_written_needs_strict_isolation() -> None:
    """Without it, a run's own writes cannot be told from those of others."""
    text = "bindings: {a: {file: b, access: both}}\n"
    assert refusal(text).startswith("f.yaml:1:33: access 'both' needs isolation: strict")
    spec = read_text(f"isolation: strict\n{text}".encode(), "n", "f", PROJECT)[0]
    assert (spec.bindings[0].access, spec.bindings[0].wake) == ("both", True)
    thinking = "agent: docs\nrun: {prompt: Keep it.}\nbindings: {a: {file: b, access: both%s}}\n"
    assert read_text((thinking % "").encode(), "n", "f", PROJECT)[0].bindings[0].access == "both"
    assert "by their content, and compare is stat" in refusal(thinking % ", compare: stat")
    assert read_text(f"run: {{command: [a], workspace: copy}}\n{text}".encode(), "n", "f", PROJECT)[0].is_staged


def test_a_workspace_stands_for_root_and_nothing_is_written_past_it() -> None:
    """Neither a binding nor `allow` may write outside: such a write could not be kept apart from the real files."""
    run = "run: {command: [a], workspace: copy}\n"
    assert refusal(f"{run}bindings: {{a: {{file: ../b, access: write}}}}").startswith(
        "f.yaml:2:22: '../b' lies outside of root"
    )
    for place in ("sub", "/project", "/"):
        assert "would be written outside of the workspace" in refusal(f"{run}allow: {{write: [{place}]}}")
    read_text(
        f"{run}allow: {{write: [/elsewhere]}}\nbindings: {{a: {{file: ../b}}, b: {{file: out/, access: write}}}}".encode(),
        "n",
        "f",
        PROJECT,
    )


def test_a_workspace_is_one_of_two_kinds() -> None:
    """A worktree without a repository is warned about when the spec is read."""
    assert "workspace is 'clone'; expected worktree or copy" in refusal("run: {command: [a], workspace: clone}")
    [warning] = [
        one for one in warnings("objective: x\nrun: {command: [a], workspace: worktree}") if "git repository" in one
    ]
    assert warning.startswith("f.yaml:2:32: ")
    assert not any("git repository" in one for one in warnings("run: {command: [a], workspace: copy}"))


def test_all_mistakes_of_a_file_come_at_once() -> None:
    """The author sees all mistakes of a kind at once, in their places."""
    assert refusal("priority: x\nrun:\n  command: a b\n  retires: 3\n").splitlines() == [
        "f.yaml:1:11: priority: 'x' is not a whole number",
        "f.yaml:3:12: command: a command is a list of words, never a shell string; write [a, b], or use script",
        "f.yaml:4:3: unknown key 'retires' in run; did you mean 'retries'?",
    ]


def test_hundreds_of_mistakes_are_told_by_twenty() -> None:
    """A wrong file does not flood the screen."""
    assert len(refusal("".join(f"key{i}: 1\n" for i in range(3000))).splitlines()) == 20


def test_a_machine_without_a_named_zone_asks_for_one() -> None:
    """A cron that would depend on a zone without a name is refused. A cron with its own zone is not."""
    nameless = Surroundings("/project", None)
    words = "f.yaml:1:22: this machine's time zone has no name; add a timezone such as Asia/Shanghai or UTC"
    assert refusal("bindings: {a: {cron: '0 6 * * *'}}", nameless) == words
    assert (
        read_text(b"bindings: {a: {cron: '0 6 * * *', timezone: UTC}}", "n", "f", nameless)[0].bindings[0].timezone
        == "UTC"
    )


WARNINGS = [
    ("run: {command: [a]}", "1:1: no objective; say in one sentence what this session is for"),
    ("objective: x\nbindings: {a: {file: b}}", "2:1: bindings may wake this session, but it has no run; add one"),
    (
        "objective: x\nrun: {command: [a]}\nconcurrency: gpu",
        "3:14: pool 'gpu' is not in wakeful.yaml, so it holds one run at a time",
    ),
    ("objective: x\nroot: nowhere", "2:7: the folder '/project/nowhere' does not exist"),
    (
        "objective: x\nrun: {command: [a]}\nbindings:\n  a: {every: 5m, overlap: replace}",
        "4:27: overlap: replace with a timeout (3600s) longer than the period (300s) may stop every run before it ends;"
        " shorten the timeout",
    ),
    (
        "objective: x\nrun: {command: [a]}\nbindings:\n  a: {cron: '*/10 * * * *', overlap: replace}",
        "4:38: overlap: replace with a timeout (3600s) longer than the period (600s) may stop every run before it ends;"
        " shorten the timeout",
    ),
    (
        "objective: x\nrun: {command: [a]}\nbindings:\n  a: {file: b}\n  c: {file: b, access: write}",
        "5:3: bindings 'a' and 'c' mean the same paths; what a session writes never wakes it",
    ),
    (
        "objective: x\nrun: {command: [a]}\nwhen: changed",
        "3:7: when: changed is about the clock, and no binding is one; add cron or every",
    ),
]


@pytest.mark.parametrize(("text", "words"), WARNINGS)
def test_a_doubtful_spec_is_taken_with_a_warning(text: str, words: str) -> None:
    """A spec that can run but is probably a mistake gives a warning, and is accepted."""
    assert warnings(text) == [f"f.yaml:{words}"]


WORDS = st.sampled_from(
    "agent objective priority tags enabled root bindings when pace window timezone first run concurrency file commits cron every"
    " message session probe service command script env timeout retries check wake settle stale access branch a 5m 0 -1 true *".split()
)
VALUES_OF_ANY_SHAPE = st.recursive(
    WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4), max_leaves=12
)


def as_flow(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f'"{key}": {as_flow(inner)}' for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(as_flow, value)) + "]"
    return f'"{value}"'


@given(st.dictionaries(WORDS, VALUES_OF_ANY_SHAPE, max_size=5))
def test_any_shape_is_taken_or_refused_with_its_place(value: dict[str, object]) -> None:
    """Known keys with values of any shape give a spec, or a SpecError that names the file."""
    try:
        spec, _ = read_text(as_flow(value).encode(), "n", "f.yaml", Surroundings(str(Path("/project")), "UTC"))
    except SpecError as error:
        assert all(line.startswith("f.yaml:") for line in str(error).splitlines())
    else:
        assert spec.name == "n"
