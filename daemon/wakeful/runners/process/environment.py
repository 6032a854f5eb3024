"""The environment of a run, and the files of its private folder that the environment names.

A run inherits only the variables of an allow-list. The daemon's own environment holds secrets of the person who started
it, and the sockets through which systemd supervises it. The files are written once per run, on the hot path, so they
are written without fsync and without a thread.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Mapping

from wakeful.runners.contract import RunOrder
from wakeful.secrets.store import name_variable
from wakeful.system.private_files import make_private

# The variables for the user, the home folder, the language, the time zone and the path of programs. Left out:
# - XDG_RUNTIME_DIR and DBUS_SESSION_BUS_ADDRESS: through the user's bus a run can start processes outside its own tree.
# - SSH_AUTH_SOCK and every other credential, DISPLAY, PYTHON*, LD_*.
# - TMPDIR: a run has a temporary folder of its own, which is emptied after it.
_INHERITED = ("PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "SHELL")
_INHERITED_PREFIX = "LC_"
# The variables through which systemd talks to the daemon. Not even a spec can pass them on, because a run could then
# answer systemd in the daemon's name.
_SUPERVISOR = ("NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY", "INVOCATION_ID", "JOURNAL_STREAM", "FDSTORE")
_SUPERVISOR_PREFIXES = ("LISTEN_", "WATCHDOG_", "MEMORY_PRESSURE_")
# The folder of the secrets, in the run's own folder next to its token.
SECRETS_FOLDER = "secrets"
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def select_inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Select the part of the daemon's environment that runs may see."""
    chosen = {
        name: value for name, value in environ.items() if name in _INHERITED or name.startswith(_INHERITED_PREFIX)
    }
    chosen.setdefault("PATH", _DEFAULT_PATH)
    return chosen


def build_environment(order: RunOrder, inherited: Mapping[str, str]) -> dict[str, str]:
    """Merge the inherited variables, those of the spec, and those of wakeful, which alone sets WAKEFUL_ variables."""
    environment = {**inherited, "TMPDIR": order.temporary}
    environment.update((name, value) for name, value in order.env.items() if not _is_reserved(name))
    environment.update((f"WAKEFUL_BINDING_{_shell_name(name)}", path) for name, path in order.bindings.items())
    folder = order.folder
    environment.update(
        (name_variable(secret.name), f"{folder}/{SECRETS_FOLDER}/{secret.name}") for secret in order.secrets
    )
    environment.update(
        WAKEFUL_SESSION=order.name,
        WAKEFUL_RUN=order.run_id,
        WAKEFUL_CAUSES=f"{folder}/causes.json",
        WAKEFUL_CHANGED=f"{folder}/changed",
        WAKEFUL_SCRATCH=order.scratch,
        WAKEFUL_SOCKET=order.socket,
        WAKEFUL_TOKEN_FILE=f"{folder}/token",
    )
    return environment


def make_folders(order: RunOrder) -> None:
    """Make the run's folder, its scratch folder and its temporary folder. No other user can read them."""
    for path in (order.folder, order.scratch, order.temporary):
        make_private(path)


def fill_folder(order: RunOrder) -> None:
    """Write the files that the run's environment names."""
    _write(f"{order.folder}/causes.json", order.causes)
    # A NUL byte ends each path, the last one too, so that `read -d ''` and `xargs -0` both get the last path.
    _write(f"{order.folder}/changed", b"".join(os.fsencode(path) + b"\0" for path in order.changed))
    _write(f"{order.folder}/token", order.token.encode())
    if order.secrets:
        make_private(f"{order.folder}/{SECRETS_FOLDER}")
    for secret in order.secrets:
        _write(f"{order.folder}/{SECRETS_FOLDER}/{secret.name}", secret.value)
    if order.script is not None:
        _write(f"{order.folder}/script", os.fsencode(order.script))


def program_of(order: RunOrder) -> tuple[str, ...]:
    if order.script is None:
        return order.argv
    return ("/bin/sh", "-eu", f"{order.folder}/script")


def check_program(name: str, cwd: str, environment: Mapping[str, str]) -> None:
    """Check that a program can be found and executed. Raises the OSError that its spawn would raise.

    Used if another program is spawned that starts this one, and would fail with a message of its own.
    """
    path = name if "/" not in name else os.path.join(cwd, name)
    if shutil.which(path, path=environment.get("PATH", "")) is not None:
        return
    if "/" in name and os.path.exists(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def _is_reserved(name: str) -> bool:
    return name.startswith("WAKEFUL_") or name in _SUPERVISOR or name.startswith(_SUPERVISOR_PREFIXES)


def _shell_name(binding: str) -> str:
    """Turn a binding's name into the end of a variable's name: `last-month` is $WAKEFUL_BINDING_LAST_MONTH."""
    return re.sub(r"[^A-Z0-9_]", "_", binding.upper())


def _write(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while content:
            content = content[os.write(fd, content) :]
    finally:
        os.close(fd)
