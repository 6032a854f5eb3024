"""Renders the systemd unit files that wakeful ships, with the paths of this command, the specs and the state.

This module only makes text and never writes a file. `wakeful install` writes the texts that `render_user` and
`render_system` return. `doctor` reads the version in an installed file. The first line of each file marks it as ours. A
file without that mark is never replaced or removed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from wakeful import __version__

USER_SERVICE, USER_SOCKET = "wakeful.service", "wakeful.socket"
SYSTEM_SERVICE, SYSTEM_SOCKET = "wakeful@.service", "wakeful@.socket"
SYSTEM_FOLDER = Path("/etc/systemd/system")
DROP_IN = "wakeful.conf"
# The folders that ProtectHome= covers.
_HOMES = ("/home", "/root", "/run/user")
_MARK = "# Written by `wakeful install`, version "
_EXEC_START = re.compile(r"(?m)^ExecStart=\S+ daemon(.*)$")


def user_folder() -> Path:
    """Return the folder of the user's own units."""
    said = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification: a relative path is invalid and counts as unset.
    return Path(said if said.startswith("/") else os.path.expanduser("~/.config")) / "systemd" / "user"


def drop_in_folder(account: str) -> Path:
    return SYSTEM_FOLDER / f"wakeful@{account}.service.d"


def render_user(program: str, specs: str | None, state: str | None) -> dict[str, str]:
    """Return the units of a user service, as file name -> text."""
    words = _words(specs or None, state) if specs else ["--specs", "%E/wakeful/sessions.d", *_words(None, state)]
    return {USER_SERVICE: _render(USER_SERVICE, program, words), USER_SOCKET: _signed(_read(USER_SOCKET))}


def render_system(program: str) -> dict[str, str]:
    """Return the template units of the system services, as file name -> text. All accounts share them."""
    return {SYSTEM_SERVICE: _render(SYSTEM_SERVICE, program, None), SYSTEM_SOCKET: _signed(_read(SYSTEM_SOCKET))}


def render_drop_in(
    program: str, specs: str | None, state: str | None, *, shown: Sequence[str] = (), code: Sequence[str] = ()
) -> str:
    """Render one account's own settings, which override the shared template.

    `shown` are other homes that the daemon needs. `code` are folders of code, which the daemon may only read.
    """
    words = _words(specs, state) if specs else ["--specs", "/etc/wakeful/%i/sessions.d", *_words(None, state)]
    # The template allows writes only in the usual folders. The files of runs are next to the folder of specs.
    places = [place for place in (os.path.dirname(specs) if specs else None, state) if place]
    lines = [
        f"ExecStart=\nExecStart={_quote(program)} daemon {' '.join(words)}",
        f"ReadWritePaths={_quote_paths(places)}",
    ]
    # The template shows only the account's own home, so other homes must be bound.
    bound = [*shown, *(place for place in places if is_in_home(place))]
    lines += [f"BindPaths={_quote_paths(bound)}"] if bound else []
    lines += [f"BindReadOnlyPaths={_quote_paths(code)}"] if code else []
    return _signed("[Service]\n" + "".join(f"{line}\n" for line in lines))


def is_in_home(path: str) -> bool:
    """Is the path in a folder that the system units hide (ProtectHome=)?"""
    return any(path == place or path.startswith(f"{place}/") for place in _HOMES)


def find_version(text: str) -> str | None:
    """Return the version of wakeful that wrote this text. None if wakeful did not write it."""
    first = text.partition("\n")[0]
    return first.removeprefix(_MARK).split(";")[0] if first.startswith(_MARK) else None


def find_program() -> str:
    """Return this command's path for systemd: the one on PATH if it is the same file, else the one next to Python."""
    beside = Path(sys.executable).with_name("wakeful")
    found = shutil.which("wakeful")
    if found is not None and (not beside.exists() or os.path.realpath(found) == os.path.realpath(beside)):
        return os.path.abspath(found)
    return str(beside)


def is_open_to_all(path: str) -> bool:
    """May every account reach, read and execute this file?"""
    real = Path(os.path.realpath(path))
    if not real.exists() or real.stat().st_mode & 0o005 != 0o005:
        return False
    return all(parent.stat().st_mode & 0o001 for parent in (*real.parents, *Path(path).absolute().parents))


def _render(name: str, program: str, words: list[str] | None) -> str:
    def replace(found: re.Match[str]) -> str:
        return f"ExecStart={_quote(program)} daemon {' '.join(words) if words is not None else found[1].strip()}"

    text, count = _EXEC_START.subn(replace, _read(name))
    assert count == 1, f"{name} must have exactly one ExecStart="
    return _signed(text)


def _words(specs: str | None, state: str | None) -> list[str]:
    given = (("--specs", specs), ("--state", state))
    return [word for flag, value in given if value is not None for word in (flag, _quote(value))]


def _quote(word: str) -> str:
    """Quote one word of a systemd command line, so that %, $, quotes and backslashes are literal."""
    return _escape(word.replace("%", "%%").replace("$", "$$"))


def _escape(word: str) -> str:
    if re.fullmatch(r"[\w@%+=:,./$~-]+", word, re.ASCII):
        return word
    escaped = "".join(f"\\{one}" if one in '\\"' else one if one.isprintable() else _show(one) for one in word)
    return f'"{escaped}"'


def _quote_paths(paths: Iterable[str]) -> str:
    """Quote a list of paths. The prefix `-` makes systemd ignore a path that does not exist."""
    return " ".join(_escape(f"-{path}".replace("%", "%%")) for path in paths)


def _show(one: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in one.encode(errors="surrogateescape"))


def _signed(text: str) -> str:
    return (
        f"{_MARK}{__version__}; `wakeful uninstall` removes it. Changes of yours belong in a drop-in: "
        f"systemctl edit\n{text}"
    )


def _read(name: str) -> str:
    """Read a unit as it is shipped: inside an installed package, or next to the package in a checkout."""
    package = Path(__file__).parent.parent
    inside = package / "systemd" / name
    return (inside if inside.exists() else package.parent.parent / "systemd" / name).read_text()
