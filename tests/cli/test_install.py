"""`install` and `uninstall` without a systemd: the text of the units, and what is refused."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cli.conftest import run_wakeful
from wakeful import __version__
from wakeful.cli.systemd_units import (
    SYSTEM_SERVICE,
    USER_SERVICE,
    USER_SOCKET,
    find_version,
    is_open_to_all,
    render_drop_in,
    render_system,
    render_user,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root installs units of the machine")
needs_systemd_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="SYSTEMD UNITS NOT CHECKED: no systemd-analyze here"
)


def exec_start(text: str) -> str:
    return re.findall(r"(?m)^ExecStart=(.+)$", text)[-1]


def test_a_unit_is_told_where_everything_is() -> None:
    """The command line has the command, the specs and the state folder.
    A place that was not named keeps its default."""
    plain, named = (
        render_user("/opt/w/bin/wakeful", None, None),
        render_user("/opt/w/bin/wakeful", "/srv/a/sessions.d", "/srv/a/state"),
    )
    assert exec_start(plain[USER_SERVICE]) == "/opt/w/bin/wakeful daemon --specs %E/wakeful/sessions.d"
    assert exec_start(named[USER_SERVICE]) == "/opt/w/bin/wakeful daemon --specs /srv/a/sessions.d --state /srv/a/state"
    assert (
        exec_start(render_system("/opt/w/bin/wakeful")[SYSTEM_SERVICE])
        == "/opt/w/bin/wakeful daemon --specs /etc/wakeful/%i/sessions.d"
    )
    assert (
        exec_start(render_drop_in("/opt/wakeful", None, "/srv/state"))
        == "/opt/wakeful daemon --specs /etc/wakeful/%i/sessions.d --state /srv/state"
    )
    assert 'ReadWritePaths="-/data/a b" -/data/100%%\n' in render_drop_in(
        "/opt/wakeful", "/data/a b/sessions.d", "/data/100%"
    )
    # The machine's unit shows one home only. A place in another home must be bound by name.
    drop_in = render_drop_in(
        "/opt/wakeful", "/home/team/specs", "/srv/state", shown=["/home/odd/place"], code=["/root/venv"]
    )
    assert (
        "ReadWritePaths=-/home/team -/srv/state\nBindPaths=-/home/odd/place -/home/team\nBindReadOnlyPaths=-/root/venv\n"
        in drop_in
    )
    assert "Bind" not in render_drop_in("/opt/wakeful", "/srv/specs", None)
    assert find_version(plain[USER_SOCKET]) == __version__ and find_version("# somebody else's\n") is None


@needs_systemd_analyze
@pytest.mark.parametrize(
    "name", ["with space", "100%", "$HOME", 'a"quote', "back\\slash", "semi;colon", "new\nline", "größe"]
)
def test_a_folder_may_have_any_name(name: str, tmp_path: Path) -> None:
    """systemd accepts the unit, and the name is one literal word. Nothing in it is expanded or adds a line."""
    unit = tmp_path / USER_SERVICE
    text = (
        render_user("/bin/sh", f"/srv/{name}", None)[USER_SERVICE]
        .replace("Requires=wakeful.socket\n", "")
        .replace("After=wakeful.socket\n", "")
    )
    unit.write_text(text)
    verdict = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", unit], capture_output=True, text=True, timeout=60
    )
    assert (verdict.returncode, verdict.stderr) == (0, "")
    assert len(re.findall(r"(?m)^ExecStart=", text)) == 1
    if "%" in name or "$" in name:
        assert name.replace("%", "%%").replace("$", "$$") in exec_start(text)


@needs_root
def test_root_has_no_daemon_of_its_own() -> None:
    """Runs execute what a spec says, so root must name an account. Neither root nor an unknown account is accepted."""
    assert "--system --account NAME" in run_wakeful("install", "--user").stderr
    for words, said in (
        (("--system",), "whose daemon?"),
        (("--account", "root"), "never runs as root"),
        (("--account", "no-such-one"), "useradd --system"),
    ):
        done = run_wakeful("install", *words, SUDO_USER="")
        assert done.returncode == 1 and said in done.stderr, done


def test_without_systemd_it_says_what_to_do_instead(tmp_path: Path) -> None:
    """Nothing is written if the daemon could not be started."""
    program = shutil.which("true")
    assert program is not None
    words = ["install", "--system", "--account", "daemon"] if os.geteuid() == 0 else ["install"]
    done = run_wakeful(*words, PATH=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert done.returncode == 1 and ("no systemd here" in done.stderr or "may not reach" in done.stderr)
    assert not (tmp_path / "config").exists()


def test_contradictions_are_usage_errors() -> None:
    """`--user` with `--system` is a usage error."""
    assert run_wakeful("install", "--user", "--system").returncode == 2
    assert run_wakeful("uninstall", "--user", "--account", "daemon").returncode == 2


def test_a_folder_of_specs_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The folder is checked first, because a daemon without its folder would end at once, again and again."""
    account = ["--account", "daemon"] if os.geteuid() == 0 else []
    done = run_wakeful("install", *account, "--specs", str(tmp_path / "absent"))
    assert done.returncode == 1 and "absent is not a folder" in done.stderr


def test_what_every_account_may_reach(tmp_path: Path) -> None:
    """Another account cannot run a program in a private folder, whatever the mode of the file is."""
    assert is_open_to_all("/bin/sh")
    program = tmp_path / "program"
    program.write_text("")
    program.chmod(0o755)
    tmp_path.chmod(0o700)
    assert not is_open_to_all(str(program)) and not is_open_to_all(str(tmp_path / "absent"))
