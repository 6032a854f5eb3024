"""A run finds exactly the environment of specs.md, and nothing of the daemon's own."""

import os
import stat

import msgspec
import pytest

pytestmark = pytest.mark.asyncio

OURS = {
    "WAKEFUL_SESSION", "WAKEFUL_RUN", "WAKEFUL_CAUSES", "WAKEFUL_CHANGED", "WAKEFUL_SCRATCH", "WAKEFUL_SOCKET", "WAKEFUL_TOKEN_FILE",
}  # fmt: skip
DUMP = "import json, os; json.dump(dict(os.environ), open('env.json', 'w'))"

LOOK = "import os, sys; print(os.getcwd()); print(repr(sys.stdin.read())); print(*sorted(os.listdir('/proc/self/fd')))"


def _dumped(bench):
    # python itself sets LC_CTYPE when it finds the C locale.
    found = msgspec.json.decode((bench.root / "env.json").read_bytes())
    found.pop("LC_CTYPE", None)
    return found


@pytest.fixture
def polluted(monkeypatch):
    """Set the environment of a daemon under systemd, in a desktop session, with secrets.

    The runner reads it later.
    """
    for name in list(os.environ):
        monkeypatch.delenv(name)
    kept = {
        "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/ada", "LANG": "C.UTF-8", "LC_TIME": "C", "TZ": "UTC", "USER": "ada",
        "LOGNAME": "ada", "SHELL": "/bin/sh",
    }  # fmt: skip
    dropped = (
        "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID", "CREDENTIALS_DIRECTORY", "INVOCATION_ID",
        "JOURNAL_STREAM", "MEMORY_PRESSURE_WATCH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY",
        "TMPDIR", "LD_PRELOAD_X", "PYTHONPATH", "WAKEFUL_STATE", "WAKEFUL_HTTP", "WAKEFUL_TOKEN",
    )  # fmt: skip
    for name, value in kept.items():
        monkeypatch.setenv(name, value)
    for name in dropped:
        monkeypatch.setenv(name, "leak")
    return kept


async def test_the_environment_is_the_allow_list_the_spec_and_ours_and_nothing_else(polluted, bench):
    order = bench.python(
        DUMP,
        env={
            "RATE": "0.19",
            "TZ": "Asia/Shanghai",
            "NOTIFY_SOCKET": "mine",
            "LISTEN_FDS": "1",
            "WAKEFUL_RUN": "forged",
        },
        bindings={"salaries": "/data/salaries.csv", "last-month": "/data/last.csv"},
    )
    assert (await bench.run(order)).exit_code == 0
    found = _dumped(bench)
    bindings = {"WAKEFUL_BINDING_SALARIES", "WAKEFUL_BINDING_LAST_MONTH"}
    assert set(found) == set(polluted) | {"RATE", "TMPDIR", "GIT_CONFIG_GLOBAL"} | OURS | bindings
    assert found["TMPDIR"] == order.temporary
    assert found | polluted | {"TZ": "Asia/Shanghai"} == found
    assert (found["WAKEFUL_RUN"], found["WAKEFUL_SESSION"]) == (order.run_id, "payroll")
    assert found["WAKEFUL_BINDING_LAST_MONTH"] == "/data/last.csv"
    assert "secret" not in found.values()


async def test_causes_changed_paths_and_token_are_files_only_the_owner_reads(bench):
    order = bench.shell(
        'cp "$WAKEFUL_CAUSES" causes; cp "$WAKEFUL_CHANGED" changed; cp "$WAKEFUL_TOKEN_FILE" token\n'
        'stat -c %a "$WAKEFUL_CAUSES" "$WAKEFUL_CHANGED" "$WAKEFUL_TOKEN_FILE" "${WAKEFUL_CAUSES%/*}" > modes',
        causes=b'{"session":"payroll","causes":[]}',
        changed=("plain.csv", "with\nnewline.csv", "r\udce9sum\udce9.txt", "*;$(id)"),
    )
    assert (await bench.run(order)).exit_code == 0
    assert (bench.root / "causes").read_bytes() == order.causes
    assert (bench.root / "changed").read_bytes() == b"plain.csv\0with\nnewline.csv\0r\xe9sum\xe9.txt\0*;$(id)\0"
    assert (bench.root / "token").read_text() == "secret"
    assert (bench.root / "modes").read_text().split() == ["600", "600", "600", "700"]


async def test_a_run_stands_in_its_folder_with_nothing_to_read_and_no_inherited_descriptor(bench):
    (bench.root / "sub").mkdir()
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        ended = await bench.run(bench.python(LOOK, cwd="sub"))
    finally:
        os.close(reader)
        os.close(writer)
    # Number 3 is the open folder of the listing itself.
    assert bench.output(ended).decode().splitlines() == [str(bench.root / "sub"), "''", "0 1 2 3"]


async def test_a_script_is_handed_over_as_a_file_and_never_interpolated(bench):
    text = "printf '%s' \"$VALUE\" > value\nprintf '%s' '`id` $(id) ${HOME}' > literal"
    await bench.run(bench.shell(text, env={"VALUE": "$(id); `id`\n\"'"}))
    assert (bench.root / "value").read_text() == "$(id); `id`\n\"'"
    assert (bench.root / "literal").read_text() == "`id` $(id) ${HOME}"


async def test_runs_are_offered_to_the_kernel_before_the_daemon_when_memory_ends(bench):
    # The daemon sets the value after the process has started, and may be slower than the process.
    script = "until [ $(cat /proc/self/oom_score_adj) = 500 ]; do sleep 0.01; done; echo offered"
    assert bench.output(await bench.run(bench.shell(script))) == b"offered\n"


async def test_the_scratch_folder_exists_before_the_first_run(bench):
    ended = await bench.run(bench.shell('test -d "$WAKEFUL_SCRATCH"'))
    assert ended.exit_code == 0
    assert stat.S_ISDIR(os.stat(bench.state / "scratch").st_mode)
