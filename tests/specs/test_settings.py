"""wakeful.yaml and the places of the daemon: the values, the order of the search, and the refusals."""

import os
import re
from pathlib import Path

import pytest

from wakeful.core.spec.budget import Price
from wakeful.core.spec.http_settings import HttpSettings, TcpAddress, choose_http
from wakeful.core.spec.limits import MEANINGS, UNWARNED, Levels, Limits, say_amount
from wakeful.core.spec.session import Retention, Settings
from wakeful.errors import OperatorError
from wakeful.settings import Places, default_settings, read_known_prices, read_settings, resolve_places
from wakeful.specs.folder_reading import read_folder
from wakeful.specs.schema import json_schema
from wakeful.specs.spec_builder import Surroundings
from wakeful.specs.value_parsers import parse_size


def settings_of(folder: Path, text: str | None) -> tuple[Settings, list[str]]:
    (folder / "sessions.d").mkdir(exist_ok=True)
    if text is not None:
        (folder / "wakeful.yaml").write_text(text)
    settings, _, problems = read_settings(folder / "sessions.d", dict(os.environ))
    return settings, [str(problem) for problem in problems]


def test_every_setting_is_taken(tmp_path: Path) -> None:
    """Each key of wakeful.yaml that this version has reaches the core typed."""
    text = """
concurrency: {commands: 7, agents: 3}
prices: {"acp:some-agent": {input: 3, output: 4}, openai-compatible:*: {input: 0, output: 0}, openai:gpt-5: {input: 1, cached: 0.1, output: 2.5}}
pools: {gpu: 1, net: 4}
limits: {output: 4MiB, message: 64KB}
retention: {keep: 90d, runs: 500, size: 1GB}
loop_depth: 5
stop_grace: 1m
hints: poll
"""
    assert settings_of(tmp_path, text) == (
        Settings(
            concurrency=7, agent_concurrency=3,
            prices={
                **read_known_prices(), "acp:some-agent": Price(input=3.0, output=4.0), "openai-compatible:*": Price(input=0.0, output=0.0), "openai:gpt-5": Price(input=1.0, cached=0.1, output=2.5),
            },
            pools={"gpu": 1, "net": 4}, loop_depth=5, stop_grace_seconds=60.0, hints="poll",
            limits=Limits(output=Levels(2**20, 4 * 2**20), message=Levels(64_000, 64_000)),
            retention=Retention(keep_seconds=90 * 86400.0, runs=500, size_bytes=10**9),
        ),
        [],
    )  # fmt: skip


@pytest.mark.parametrize("text", [None, "", "# nothing yet\n\n"])
def test_no_settings_are_the_defaults(text: str | None, tmp_path: Path) -> None:
    """Neither a missing file nor one of comments is an error. Commands may use every core."""
    settings, problems = settings_of(tmp_path, text)
    assert (settings, problems) == (default_settings(), [])
    assert settings.concurrency == len(os.sched_getaffinity(0))


def test_a_person_s_own_file_is_used_where_the_project_has_none(tmp_path: Path) -> None:
    """$XDG_CONFIG_HOME/wakeful/wakeful.yaml counts only while there is none beside sessions.d/."""
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "wakeful"
    own.mkdir(parents=True)
    (own / "wakeful.yaml").write_text("concurrency: 9")
    assert settings_of(tmp_path, None)[0].concurrency == 9
    assert settings_of(tmp_path, "concurrency: 4")[0].concurrency == 4


BAD = [
    ("concurency: 4", "1:1: unknown key 'concurency' in wakeful.yaml; did you mean 'concurrency'?"),
    ("concurrency: 0", "1:14: concurrency is 0; expected at least 1"),
    ("pools: {gpu: many}", "1:14: gpu: 'many' is not a whole number"),
    (
        "limits: {output: 4}",
        "1:18: output: '4' is not a size; write one number and its unit, such as 64KB, 10MB or 1GB",
    ),
    (
        "limits: {output: {warn: 4MB, hard: 1MB}}",
        "1:25: limits.output: the level that warns (4,000,000 bytes) is above the hard one (1,000,000 bytes); lower it",
    ),
    ("limits: {facts: {hard: many}}", "1:24: hard: 'many' is not a whole number"),
    ("limits: {fact: {soft: 1KB}}", "1:17: unknown key 'soft' in fact; expected one of warn, hard"),
    ("limits: {kept_run: {warn: 1KB}}", "1:21: unknown key 'warn' in kept_run; expected one of hard"),
    ("limits: {output: 0}", "1:18: output is 0; expected at least 1024"),
    (
        "limits: {heap: 1KB}",
        "1:10: unknown key 'heap' in limits; expected one of payload, message, note, fact, facts, conversation, output, records, mailbox, deliveries, tokens, kept_file, kept_run, kept_files, processes",
    ),
    (
        "retention: {keep: long}",
        "1:19: keep: 'long' is not a duration; write one number and its unit, such as 500ms, 30s, 5m, 2h or 7d",
    ),
    ("hints: inotfy", "1:8: hints is 'inotfy'; expected auto, inotify, watchfiles or poll; did you mean 'inotify'?"),
    ("http: 8420", "1:7: http: '8420' is not an address; expected HOST:PORT such as 127.0.0.1:8420, or off"),
    (
        "http: example.org:80",
        "1:7: http: 'example.org' is not an IP address; expected HOST:PORT such as 127.0.0.1:8420, or off. Names belong into hosts of wakeful.yaml",
    ),
    (
        "http: 0.0.0.0:80",
        "1:1: http: 0.0.0.0:80 can be reached from other machines; that takes beyond_loopback: true, a certificate and a key in wakeful.yaml. Listen on 127.0.0.1 otherwise, and use ssh -L from afar",
    ),
    (
        "http: {listen: 192.0.2.1:443, certificate: c.pem, key: k.pem}",
        "1:1: http: 192.0.2.1:443 can be reached from other machines; that takes beyond_loopback: true, a certificate and a key in wakeful.yaml. Listen on 127.0.0.1 otherwise, and use ssh -L from afar",
    ),
    (
        "http: {listen: 192.0.2.1:443, beyond_loopback: true}",
        "1:1: http: 192.0.2.1:443 can be reached from other machines; that takes beyond_loopback: true, a certificate and a key in wakeful.yaml. Listen on 127.0.0.1 otherwise, and use ssh -L from afar",
    ),
    (
        'http: {listen: "[::]:443", beyond_loopback: true, certificate: c.pem, key: k.pem}',
        "1:1: http: [::]:443 is every address of this machine; say in hosts under which names, with the port, browsers may reach it",
    ),
    (
        "http: {listen: 127.0.0.1:443, certificate: c.pem}",
        "1:1: http has a certificate and no key; add the key, or remove the certificate",
    ),
    (
        "http: {listen: 127.0.0.1:80, hosts: [https://a.example]}",
        "1:37: hosts: expected hosts as a browser sends them, such as [wakeful.example.org], each with its port unless that is 80 or 443",
    ),
    (
        "notify: {ops: {webhook: 'https://x.org'}}",
        "1:16: notifier 'ops' signs what it sends: name its secret, such as secret: ops-key, and set it with wakeful secret set ops-key; for an address that checks no signature use url",
    ),
    (
        "notify: {ops: {webhok: 'https://x.org', secret: a}}",
        "1:16: unknown key 'webhok' in ops; did you mean 'webhook'?",
    ),
    (
        "notify: {ops: {command: [a], ntfy: 'https://x.org/y'}}",
        "1:10: notifier 'ops' has 2 kinds (command, ntfy); split it into one each; a notifier has exactly one of command, webhook, email, ntfy, url, desktop",
    ),
    (
        "notify: {ops: {on: failed}}",
        "1:10: notifier 'ops' has no kind; a notifier has exactly one of command, webhook, email, ntfy, url, desktop",
    ),
    (
        "notify: {ops: {ntfy: 'https://x.org/y', on: [faild]}}",
        "1:45: on: 'faild' is not known; did you mean 'failed'?",
    ),
    ("notify: {none: {desktop: true}}", "1:10: 'none' means no notifier in a session's `notify`; choose another name"),
    (
        "notify: {ops: {desktop: true, secret: x}}",
        "1:31: 'secret' belongs to webhook and ntfy and url, and notifier 'ops' is desktop; remove it",
    ),
    (
        "notify: {ops: {url: 'https://x.org/{secret}'}}",
        "1:16: notifier 'ops' says {secret}, and names no secret; add secret: NAME",
    ),
    (
        "notify: {ops: {ntfy: 'https://me:pw@x.org/t'}}",
        "1:22: ntfy: an address holds no password; name the secret under secret",
    ),
    (
        "notify: {m: {email: {to: a@x.org, from: b@x.org, server: 'smtp://x.org:25', user: me}}}",
        "1:14: notifier 'm' needs user and secret together: one logs in with both",
    ),
    (
        "notify: {m: {email: {to: a, from: b@x.org, server: 'smtp://x.org:25'}}}",
        "1:26: to: 'a' is not an e-mail address; write NAME@HOST",
    ),
    ("concurrency: {agents: 0}", "1:23: agents is 0; expected at least 1"),
    (
        "prices: {gpt: {input: 1, output: 1}}",
        "1:10: 'gpt' is no model; write PROVIDER:NAME, such as anthropic:claude-sonnet-4-5, openai-compatible:* or acp:PROGRAM",
    ),
    ("prices: {openai:a: {input: 1}}", "1:20: key 'output' is missing; add it"),
    (
        "prices: {openai:a: {input: -1, output: 2}}",
        "1:28: input: '-1' is not an amount of money; write USD for a million tokens such as 0.50, or 0",
    ),
    ("loop_depth: 8\ndefaults:\n  priority: hgh", "3:13: priority: 'hgh' is not a whole number"),
    (
        "defaults: {hosts: [big]}",
        "1:12: not yet: 'hosts' in this session is known, but this version cannot do it; remove it for now",
    ),
    ("a: [", "2:1: the file ends inside a [ or {; close it"),
]


@pytest.mark.parametrize(("text", "words"), BAD)
def test_a_mistake_in_the_settings_is_named_where_it_stands(text: str, words: str, tmp_path: Path) -> None:
    """wakeful.yaml is refused in the same words as a spec, and meanwhile the defaults apply."""
    assert settings_of(tmp_path, text) == (default_settings(), [f"wakeful.yaml:{words}"])


def test_defaults_are_merged_under_every_spec(tmp_path: Path) -> None:
    """A spec's own keys take precedence. `run` merges by key, bindings by name.

    No session gets a run from the defaults alone.
    """
    folder = tmp_path / "sessions.d"
    folder.mkdir()
    (tmp_path / "wakeful.yaml").write_text(
        "defaults:\n  priority: 20\n  run: {timeout: 5m, env: {A: b}}\n  bindings:\n    rules: {file: AGENTS.md, wake: false}\n"
    )
    (folder / "a.yaml").write_text(
        "objective: x\npriority: 70\nrun: {command: [true], env: {C: d}}\nbindings: {data: {file: a}}\n"
    )
    (folder / "b.yaml").write_text("objective: x\n")
    _, defaults, problems = read_settings(folder)
    reading = read_folder(folder, Surroundings(str(tmp_path)), defaults)
    assert (problems, reading.problems) == ((), {})
    first, second = reading.sessions["a"], reading.sessions["b"]
    assert (first.priority, second.priority) == (70, 20)
    assert (first.run.timeout_seconds, first.run.env, second.run) == (300.0, {"C": "d"}, None)
    assert [binding.name for binding in first.bindings] == ["rules", "data", "message"]


def test_a_default_that_does_not_fit_a_spec_is_shown_where_it_stands(tmp_path: Path) -> None:
    """A mistake that exists only after the merge is reported at the value: in wakeful.yaml or in the spec."""
    folder = tmp_path / "sessions.d"
    folder.mkdir()
    (tmp_path / "wakeful.yaml").write_text(
        "defaults:\n  agent: docs\n  bindings:\n    a-b: {file: x}\n    late: {session: late}\n    gone: {session: gone}\n"
    )
    (folder / "agents").mkdir()
    (folder / "agents" / "own.yaml").write_text("prompt: x\nmodel: openai:m\n")
    (folder / "a.yaml").write_text("objective: x\nagent: own\nbindings:\n  a_b: {file: y}\n")
    (folder / "b.yaml").write_text("objective: x\nagent: own\nbindings:\n  c: {session: b}\n")
    (folder / "late.yaml").write_text("objective: x\nagent: own\n")
    (folder / "lost.yaml").write_text("objective: x\n")
    (folder / "mine.yaml").write_text("objective: x\nagent: ow\n")
    (folder / "well.yaml").write_text("objective: x\nagent: own\n")
    reading = read_folder(folder, Surroundings(str(tmp_path)), read_settings(folder)[1])
    assert reading.refused == {
        "a": "sessions.d/a.yaml:4:3: bindings 'a-b' and 'a_b' would both be $WAKEFUL_BINDING_A_B; rename one",
        "b": "sessions.d/b.yaml:4:16: a session cannot wait for itself; name another, or remove the binding",
        "late": "wakeful.yaml:5:21: a session cannot wait for itself; name another, or remove the binding",
        "lost": "wakeful.yaml:2:10: agent 'docs' does not exist; write agents/docs.yaml, or remove the key",
        "mine": "sessions.d/mine.yaml:2:8: agent 'ow' does not exist; did you mean 'own'?",
    }
    warned = "wakeful.yaml:6:21: session 'gone' is not declared; this waits until it is"
    assert {str(one) for one in reading.warnings if "not declared" in one.text} == {warned}


# -- places ---------------------------------------------------------------------------------------


def places(cwd: Path, flags: dict[str, str | None] | None = None, **environ: str) -> Places:
    return resolve_places(flags or {}, {"HOME": "/home/ann", **environ}, cwd)


def test_places_fall_back_to_the_person_s_folders(tmp_path: Path) -> None:
    """Without flags, variables and ./sessions.d everything lies in the XDG folders."""
    assert places(tmp_path) == Places(
        specs=Path("/home/ann/.config/wakeful/sessions.d"),
        state=Path("/home/ann/.local/state/wakeful"),
        socket=Path("/home/ann/.local/state/wakeful/wakeful.sock"),
    )


def test_a_folder_of_specs_here_is_the_one(tmp_path: Path) -> None:
    """./sessions.d takes precedence over the person's own folder."""
    (tmp_path / "sessions.d").mkdir()
    assert places(tmp_path).specs == tmp_path / "sessions.d"


def test_flags_go_before_variables_and_variables_before_systemd(tmp_path: Path) -> None:
    """Each place has one order of precedence. Relative paths start from the current folder."""
    environ = {
        "WAKEFUL_SPECS": "~/specs", "WAKEFUL_STATE": "/v/state", "WAKEFUL_SOCKET": "/v/sock", "WAKEFUL_HTTP": "127.0.0.1:8420",
        "STATE_DIRECTORY": "/var/lib/wakeful:/var/lib/other", "RUNTIME_DIRECTORY": "/run/wakeful", "XDG_RUNTIME_DIR": str(tmp_path),
    }  # fmt: skip
    assert places(tmp_path, **environ) == Places(
        Path("/home/ann/specs"), Path("/v/state"), Path("/v/sock"), TcpAddress("127.0.0.1", 8420)
    )
    flags = {"specs": "s", "state": "../t", "socket": "/f/sock", "http": "off"}
    assert places(tmp_path, flags, **environ) == Places(tmp_path / "s", tmp_path.parent / "t", Path("/f/sock"), "off")
    systemd = {name: value for name, value in environ.items() if not name.startswith("WAKEFUL")}
    assert places(tmp_path, **systemd).state == Path("/var/lib/wakeful")
    assert places(tmp_path, **systemd).socket == Path("/run/wakeful/wakeful.sock")


def test_the_runtime_folder_is_used_only_while_it_exists() -> None:
    """The end of a login removes the folder but not the variable. The socket is then in the state folder."""
    cwd = Path("/")
    assert places(cwd, XDG_RUNTIME_DIR="/not/there", XDG_STATE_HOME="/s").socket == Path("/s/wakeful/wakeful.sock")
    assert places(cwd, XDG_RUNTIME_DIR="/tmp").socket == Path("/tmp/wakeful.sock")


def test_a_socket_path_the_system_cannot_hold_is_refused() -> None:
    """The limit of 107 bytes is reported before the daemon tries to listen."""
    with pytest.raises(
        OperatorError, match=r"has 108 bytes, and the system allows 107: /x+; choose a shorter one with --socket"
    ):
        places(Path("/"), {"socket": "/" + "x" * 107})
    assert len(str(places(Path("/"), {"socket": "/" + "x" * 106}).socket)) == 107


@pytest.mark.parametrize("text", ["8420", "host:", ":80", "127.0.0.1:99999", "127.0.0.1:x", "host:80", "127.0.0.1:-1"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    """--http accepts HOST:PORT or off, and the message says so."""
    with pytest.raises(OperatorError, match="expected HOST:PORT"):
        places(Path("/"), {"http": text})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("localhost:0", TcpAddress("127.0.0.1", 0)),
        ("[::1]:8420", TcpAddress("::1", 8420)),
        ("127.0.0.2:65535", TcpAddress("127.0.0.2", 65535)),
        ("OFF", "off"),
    ],
)
def test_an_address_is_taken_as_it_is_written(text: str, found: object) -> None:
    """An address may have brackets around IPv6, be localhost, or have port 0 for any free port."""
    assert places(Path("/"), {"http": text}).http == found


def test_http_is_an_address_or_keys(tmp_path: Path) -> None:
    """The setting has a short form, a long form whose paths start from the file's folder, and `off`."""
    assert settings_of(tmp_path, "http: 127.0.0.1:8420")[0].http == HttpSettings(listen=TcpAddress("127.0.0.1", 8420))
    text = (
        'http: {listen: "[::]:8443", hosts: [W.example:8443], beyond_loopback: true, certificate: c.pem, key: /k.pem}'
    )
    assert settings_of(tmp_path, text)[0].http == HttpSettings(
        listen=TcpAddress("::", 8443),
        hosts=("w.example:8443",),
        is_beyond_loopback=True,
        certificate=str(tmp_path / "c.pem"),
        key="/k.pem",
    )
    assert settings_of(tmp_path, "http: off")[0].http == "off"
    assert settings_of(tmp_path, "pools: {}")[0].http is None


def test_the_flag_says_where_and_the_file_says_how() -> None:
    """--http changes the address. The hosts and the certificate of the file stay. `off` in either place means off."""
    said, file = TcpAddress("127.0.0.1", 1), HttpSettings(listen=TcpAddress("::1", 2), hosts=("w.example",))
    assert choose_http(said, file) == HttpSettings(listen=said, hosts=("w.example",))
    assert choose_http(said, "off") == choose_http(said, None) == HttpSettings(listen=said)
    assert choose_http("off", file) == choose_http(None, "off") == "off"
    assert choose_http(None, file) == file and choose_http(None, None) is None


def test_a_level_alone_moves_the_other_only_where_it_must(tmp_path: Path) -> None:
    """A hard level alone keeps the warning level below it. A warning level alone keeps the hard level above it."""
    text = "limits:\n  message: {warn: 1KB}\n  fact: {hard: 2KB}\n  facts: {warn: 50_000}\n  records: 2,000,000\n"
    limits = settings_of(tmp_path, text)[0].limits
    assert (limits.message, limits.fact) == (Levels(1_000, 256 * 1024), Levels(2_000, 2_000))
    assert (limits.facts, limits.records) == (Levels(50_000, 50_000), Levels(1_000_000, 2_000_000))
    assert limits.output == Limits().output


@pytest.mark.parametrize("said", ["0", "{hard: 0}", "0B"])
def test_keeping_contents_of_files_can_be_bounded_and_switched_off(tmp_path: Path, said: str) -> None:
    """These limits have no warning level. Contents beyond them are listed as not kept."""
    limits = settings_of(tmp_path, f"limits: {{kept_file: 1MB, kept_run: {said}, kept_files: 0}}\n")[0].limits
    assert (limits.kept_file.hard, limits.kept_run.hard, limits.kept_files.hard) == (1_000_000, 0, 0)


def test_every_limit_is_in_the_schema_and_told_in_words() -> None:
    """One table names the limits, and the schema and the messages have all of them."""
    keys = json_schema("daemon")["$defs"]["LimitKeys"]["properties"]
    assert list(keys) == list(MEANINGS) == list(Limits.__struct_fields__)
    for name, levels in ((name, Limits().of(name)) for name in MEANINGS):
        assert say_amount(name, levels.warn) and Limits().refuse_beyond(name, levels.hard) is None
        assert levels.warn == levels.hard if name in UNWARNED else levels.warn < levels.hard
        pattern = r"Default: ((\w+))[;.]" if name in UNWARNED else r"Default: \{warn: (\w+), hard: (\w+)\}"
        said = re.search(pattern, keys[name]["description"])
        assert said is not None
        parse = parse_size if "B" in said[1] else int
        assert (parse(said[1]), parse(said[2])) == (levels.warn, levels.hard)


def test_beyond_a_hard_level_the_words_say_how_much_is_too_much() -> None:
    """A person reads sizes, not powers of two."""
    assert Limits().refuse_beyond("message", 300 * 1024) == "one message: at most 256 KiB, this would be 300 KiB"
    assert Limits().refuse_beyond("facts", 10_001) == "facts of a session: at most 10,000, this would be 10,001"
