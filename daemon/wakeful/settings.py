"""Resolves the daemon's settings (wakeful.yaml) and its places (specs, state, socket).

The values come from flags, the environment and files. Called by wiring and the CLI. `ProjectReader` reads settings,
agents and specs together, for `sources/declarations`, and writes one file: the cache of parsed specs. No function here
makes a folder.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from wakeful.core.agents.prices import Prices, find_meant_model
from wakeful.core.record.observations import Declaration
from wakeful.core.spec.agent import EXTERNAL, AgentSpec, ModelSpec, split_model
from wakeful.core.spec.budget import Price
from wakeful.core.spec.http_settings import HttpChoice, HttpSettings, TcpAddress, parse_address
from wakeful.core.spec.limits import MEANINGS, UNWARNED, Levels, Limits, say_amount
from wakeful.core.spec.session import MetricsSettings, OtelSettings, Retention, Settings
from wakeful.errors import OperatorError
from wakeful.specs.folder_reading import (
    AGENTS,
    NO_DEFAULTS,
    Defaults,
    FileReading,
    FolderReading,
    read_folder,
    read_text,
    validate,
)
from wakeful.specs.notifiers import build_notifiers
from wakeful.specs.parse_cache import load_readings, save_readings
from wakeful.specs.problem import Problem, RefusedSpec, refuse
from wakeful.specs.settings_models import DaemonKeys, HttpKeys, LimitKeys, PriceKeys
from wakeful.specs.spec_builder import Surroundings, build_retention
from wakeful.specs.templates import Glob
from wakeful.specs.value_parsers import find_local_zone
from wakeful.specs.yaml_text import MAX_BYTES, read_mapping, read_marks, shorten
from wakeful.system.state_folder import SOCKET_FILE
from wakeful.text.display import ReportProgress, ignore_progress

SETTINGS_FILE = "wakeful.yaml"
SPECS_FOLDER = "sessions.d"
PRICES_FILE = Path(__file__).parent / "agents" / "prices.json"
# sun_path holds 108 bytes, the last of them a NUL.
LONGEST_SOCKET_BYTES = 107


# -- places ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Places:
    """The folders and addresses of a daemon: specs, state, socket, TCP. If `http` is None, wakeful.yaml decides."""

    specs: Path
    state: Path
    socket: Path
    http: TcpAddress | Literal["off"] | None = None


def resolve_places(flags: Mapping[str, str | None], environ: Mapping[str, str], cwd: Path) -> Places:
    """Resolve each place: by the flag, else the WAKEFUL_ variable, else systemd's variables, else the XDG folders.

    `flags` may have the keys `specs`, `state`, `socket` and `http`. Raises OperatorError if a value is not usable.
    """

    def said(name: str) -> str | None:
        return flags.get(name) or environ.get(f"WAKEFUL_{name.upper()}") or None

    specs = _absolute(said("specs"), environ, cwd) or _default_specs(environ, cwd)
    state = _absolute(said("state"), environ, cwd) or _default_state(environ)
    socket = _absolute(said("socket"), environ, cwd) or _default_socket(environ, state)
    size = len(os.fsencode(socket))
    if size > LONGEST_SOCKET_BYTES:
        raise OperatorError(
            f"the socket's path has {size} bytes, and the system allows {LONGEST_SOCKET_BYTES}: {socket};"
            " choose a shorter one with --socket or WAKEFUL_SOCKET"
        )
    return Places(specs, state, socket, _parse_http(said("http")))


def _absolute(text: str | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    if text is None:
        return None
    if text == "~" or text.startswith("~/"):
        text = str(_home(environ)) + text[1:]
    return Path(os.path.normpath(cwd / text))


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or os.path.expanduser("~"))


def _xdg(environ: Mapping[str, str], name: str, otherwise: str) -> Path:
    # By the XDG specification, a relative path is invalid and counts as unset.
    found = environ.get(name, "")
    return Path(found) if found.startswith("/") else _home(environ) / otherwise


def _default_specs(environ: Mapping[str, str], cwd: Path) -> Path:
    here = cwd / SPECS_FOLDER
    return here if here.is_dir() else _xdg(environ, "XDG_CONFIG_HOME", ".config") / "wakeful" / SPECS_FOLDER


def _default_state(environ: Mapping[str, str]) -> Path:
    # systemd separates several folders by colons; ours is the first.
    if given := environ.get("STATE_DIRECTORY", "").split(":")[0]:
        return Path(given)
    return _xdg(environ, "XDG_STATE_HOME", ".local/state") / "wakeful"


def _default_socket(environ: Mapping[str, str], state: Path) -> Path:
    if given := environ.get("RUNTIME_DIRECTORY", "").split(":")[0]:
        return Path(given) / SOCKET_FILE
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    # The system removes the folder at logout, but a detached terminal still has the variable.
    return (Path(runtime) if runtime and os.path.isdir(runtime) else state) / SOCKET_FILE


def _parse_http(text: str | None) -> TcpAddress | Literal["off"] | None:
    if text is None or text.lower() == "off":
        return None if text is None else "off"
    try:
        return parse_address(text)
    except ValueError as error:
        raise OperatorError(f"--http: {error}") from None


# -- wakeful.yaml ---------------------------------------------------------------------------------


def settings_home(environ: Mapping[str, str]) -> Path:
    """Return the user's folder of settings (XDG_CONFIG_HOME). wakeful and systemd each have a folder in it."""
    return _xdg(environ, "XDG_CONFIG_HOME", ".config")


def find_settings_file(specs_dir: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Find wakeful.yaml: next to sessions.d/, else in the user's settings. Without either, the first place counts."""
    beside = Path(os.path.abspath(specs_dir)).parent / SETTINGS_FILE
    own = _xdg(environ, "XDG_CONFIG_HOME", ".config") / "wakeful" / SETTINGS_FILE
    # `Path.exists` would raise if a folder may not be entered. That error is reported when the file is read.
    return own if not os.path.exists(beside) and os.path.exists(own) else beside


def read_settings(
    specs_dir: Path, environ: Mapping[str, str] = os.environ
) -> tuple[Settings, Defaults, tuple[Problem, ...]]:
    """Read the settings with every default resolved. If there are problems, the settings are the built-in defaults."""
    return read_settings_file(find_settings_file(specs_dir, environ))


def read_settings_file(path: Path) -> tuple[Settings, Defaults, tuple[Problem, ...]]:
    try:
        data = _read_bytes(path)
        return (*_parse_settings(data, path), ())
    except FileNotFoundError:
        return default_settings(), NO_DEFAULTS, ()
    except OSError as error:
        problem = Problem(path.name, 1, 1, f"cannot be read: {error.strerror or error}; check its permissions")
        return default_settings(), NO_DEFAULTS, (problem,)
    except RefusedSpec as refusal:
        return default_settings(), NO_DEFAULTS, refusal.problems


def name_notifiers(settings: Settings) -> frozenset[str]:
    return frozenset(one.name for one in settings.notifiers)


def default_settings() -> Settings:
    return Settings(concurrency=_count_cores(), prices=dict(read_known_prices()))


def read_known_prices() -> Mapping[str, Price]:
    """Return the prices that come with wakeful."""
    return _read_price_list().prices


def warn_about_model_name(prices: Prices, model: ModelSpec) -> str | None:
    """Return a warning if a model's name is probably misspelt, else None.

    A model with its own `base_url` is not checked, because a server may use any names.
    """
    meant = find_meant_model(prices, model.name) if model.base_url is None else None
    return (
        f"{model.name} is not in the list of models of {_read_price_list().as_of}; did you mean {meant}? "
        "A newer model works, too"
        if meant
        else None
    )


@functools.cache
def _read_price_list() -> _PriceList:
    return msgspec.json.decode(PRICES_FILE.read_bytes(), type=_PriceList)


class _PriceList(msgspec.Struct):
    about: str
    # The month of the list, as text.
    as_of: str
    prices: dict[str, Price]


def _resolve_prices(keys: Mapping[str, PriceKeys], data: bytes, file: str) -> dict[str, Price]:
    """Merge the given prices over the known ones. Each name is a model, or a prefix of models. Raises RefusedSpec."""
    for name in keys:
        is_external = name.startswith(f"{EXTERNAL}:")
        if not is_external and split_model(name.removesuffix("*") + ("x" if name.endswith(":*") else "")) is None:
            words = (
                f"'{shorten(name)}' is no model; write PROVIDER:NAME, such as anthropic:claude-sonnet-4-5, "
                "openai-compatible:* or acp:PROGRAM"
            )
            raise refuse(file, *read_marks(data, file).of_key(("prices", name)), words)
    return {
        **read_known_prices(),
        **{
            name: Price(input=one.input, output=one.output, cached=one.cached, cache_write=one.cache_write)
            for name, one in keys.items()
        },
    }


def _read_bytes(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):
        raise refuse(path.name, 1, 1, "this is no regular file; replace it by one, or remove it")
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _parse_settings(data: bytes, path: Path) -> tuple[Settings, Defaults]:
    file = path.name
    # A file that has only comments, as a new file does, sets nothing.
    if not any(line.strip() and not line.lstrip().startswith(b"#") for line in data.splitlines()):
        return default_settings(), NO_DEFAULTS
    value = read_mapping(data, file)
    keys: DaemonKeys = validate(DaemonKeys, value, data, file, "daemon")
    defaults = Defaults(keys.defaults, file, read_marks(data, file)) if keys.defaults else NO_DEFAULTS
    _check_defaults(defaults)
    concurrency = keys.concurrency
    return (
        Settings(
            concurrency=(concurrency and concurrency.commands) or _count_cores(),
            agent_concurrency=(concurrency and concurrency.agents) or Settings().agent_concurrency,
            pools=dict(keys.pools),
            prices=_resolve_prices(keys.prices, data, file),
            loop_depth=keys.loop_depth,
            stop_grace_seconds=keys.stop_grace,
            hints=keys.hints,
            limits=_resolve_limits(keys.limits, data, file) if keys.limits is not None else Limits(),
            retention=build_retention(keys.retention) or Retention(),
            allow_unisolated=keys.allow_unisolated,
            trust=keys.trust,
            http=_resolve_http(keys.http, path, data) if keys.http is not None else None,
            accounts=dict(keys.people.accounts) if keys.people is not None else {},
            socket_group=keys.people.socket_group if keys.people is not None else None,
            notifiers=build_notifiers(keys.notify, read_marks(data, file), file) if keys.notify else (),
            metrics=MetricsSettings(sessions=keys.metrics.sessions) if keys.metrics is not None else MetricsSettings(),
            otel=OtelSettings(endpoint=keys.otel.endpoint, service_name=keys.otel.service_name)
            if keys.otel is not None
            else None,
        ),
        defaults,
    )


def _resolve_http(keys: HttpKeys, path: Path, data: bytes) -> HttpChoice:
    """Resolve the key `http`. Paths are relative to the file's folder. Raises RefusedSpec if the daemon must not listen
    with these settings."""
    if keys.listen == "off":
        return "off"
    certificate, key = (
        os.path.join(os.path.abspath(path.parent), one) if one is not None else None
        for one in (keys.certificate, keys.key)
    )
    found = HttpSettings(
        listen=parse_address(keys.listen),
        hosts=keys.hosts,
        is_beyond_loopback=keys.beyond_loopback,
        certificate=certificate,
        key=key,
    )
    if (obstacle := found.find_obstacle()) is not None:
        raise refuse(path.name, *read_marks(data, path.name).of_key(("http",)), obstacle)
    return found


def _resolve_limits(keys: LimitKeys, data: bytes, file: str) -> Limits:
    """Merge the given levels over the defaults. A hard level alone can lower the default warning, never raise it."""
    given: dict[str, Levels] = {}
    for name, default in ((name, Limits().of(name)) for name in MEANINGS):
        found = getattr(keys, name)
        if found is None:
            continue
        if name in UNWARNED:
            given[name] = Levels(found.hard, found.hard)
            continue
        hard = found.hard or max(default.hard, found.warn)
        warn = found.warn or min(default.warn, hard)
        if warn > hard:
            place = read_marks(data, file).of_value(("limits", name, "warn"))
            words = (
                f"limits.{name}: the level that warns ({say_amount(name, warn)}) is above the hard one "
                f"({say_amount(name, hard)}); lower it"
            )
            raise refuse(file, *place, words)
        given[name] = Levels(warn, hard)
    return Limits(**given)


def _check_defaults(defaults: Defaults) -> None:
    """Check the defaults once, with the smallest session, so that a mistake in them is not reported for every file."""
    if defaults.value:
        read_text(
            b"objective: defaults\nrun: {command: ['true']}\n", "defaults", defaults.file, Surroundings("/"), defaults
        )


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# -- one reading of everything --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProjectReading:
    """The project's declarations as they are now.

    `refused` is keyed as SpecsRead is: a session's name, `agents/<name>` or `wakeful.yaml`.
    """

    settings: Settings
    declared: dict[str, Declaration]
    refused: dict[str, str]
    folders: tuple[str, ...]
    warnings: tuple[Problem, ...] = ()
    globs: tuple[Glob, ...] = ()
    # Files outside the specs' folders that specs depend on, as (folder, name). A change of one needs a new reading.
    outside_files: frozenset[tuple[str, str]] = frozenset()
    # Folders in which every change needs a new reading.
    attached: tuple[str, ...] = ()
    agents: Mapping[str, AgentSpec] = field(default_factory=dict)
    # Both by the agent's name. `agent_problems`: why its file cannot be read. `agent_doubts`: why its content does not
    # count before a person trusts it.
    agent_problems: Mapping[str, str] = field(default_factory=dict)
    agent_doubts: Mapping[str, str] = field(default_factory=dict)

    def is_news(self, folder: str, name: str) -> bool:
        """Does a change of this name in this folder need a new reading? True if a template or a spec depends on it."""
        if (folder, name) in self.outside_files or any(f"{folder}/".startswith(f"{one}/") for one in self.attached):
            return True
        return any(glob.is_news(folder, name) for glob in self.globs)


class ProjectReader:
    """Reads wakeful.yaml, agents and specs, skips files that did not change, and keeps the last good settings.

    `kept` is the file in which readings are saved for the next daemon. `pools` is None for the daemon's own project.
    For a second project it holds the daemon's pools, and only the defaults of that project's wakeful.yaml are used.
    """

    def __init__(
        self,
        specs_dir: Path,
        environ: Mapping[str, str] = os.environ,
        kept: Path | None = None,
        pools: frozenset[str] | None = None,
        accept: Callable[[Path], bytes | None] = lambda path: None,
        report_progress: ReportProgress = ignore_progress,
    ) -> None:
        """`accept` returns the text to use instead of the settings file, or None to use the file itself."""
        self._specs_dir = Path(os.path.abspath(specs_dir))
        self._environ = environ
        self._settings = default_settings()
        self.pools = pools
        # The daemon's notifiers, if this is a second project of the daemon.
        self.notifiers: frozenset[str] | None = None
        self._accept = accept
        self.defaults = NO_DEFAULTS
        self._folder: FolderReading | None = None
        self._kept = kept
        # The readings that the file `kept` holds already.
        self._left: Mapping[str, FileReading] = {}
        self._report_progress = report_progress

    def read(self) -> ProjectReading:
        settings, defaults, problems = self._read_accepted()
        if not problems:
            self._settings = settings
            # Equal defaults stay the same object, so that the readings of all files stay valid.
            self.defaults = self.defaults if defaults == self.defaults else defaults
        around = Surroundings(
            str(self._specs_dir.parent),
            find_local_zone(self._environ),
            frozenset(self._settings.pools) if self.pools is None else self.pools,
            str(self._kept.parent) if self._kept is not None else None,
            str(self._specs_dir),
            name_notifiers(self._settings) if self.notifiers is None else self.notifiers,
        )
        if self._folder is None and self._kept is not None:
            self._left = load_readings(self._kept, self.defaults, around)
        # The saved readings are valid only with the defaults of the first reading.
        kept = self._left if self._folder is None else None
        folder = self._folder = read_folder(
            self._specs_dir, around, self.defaults, self._folder, kept, self._report_progress
        )
        refused = dict(folder.refused)
        if problems:
            refused[SETTINGS_FILE] = "\n".join(map(str, problems))
        return ProjectReading(
            settings=self._settings,
            declared={name: Declaration(spec, folder.text_digests[name]) for name, spec in folder.sessions.items()},
            refused=refused,
            folders=self._watched_folders(folder),
            warnings=tuple(folder.warnings),
            globs=tuple(expansion.glob for expansion in folder.expansions.values()),
            outside_files=frozenset(os.path.split(one) for one in (*folder.agent_files, *folder.skill_folders)),
            attached=folder.skill_folders,
            agents=folder.agents,
            agent_problems={
                name.removeprefix(f"{AGENTS}/"): words
                for name, words in refused.items()
                if name.startswith(f"{AGENTS}/")
            },
        )

    def _read_accepted(self) -> tuple[Settings, Defaults, tuple[Problem, ...]]:
        text = self._accept(self.settings_file)
        if text is None:
            return read_settings_file(self.settings_file)
        try:
            self._settings, self.defaults = _parse_settings(text, self.settings_file)
        except RefusedSpec as refusal:
            # The accepted text is older than this release, which refuses it. The settings stay as they are.
            return self._settings, self.defaults, refusal.problems
        problem = Problem(
            SETTINGS_FILE,
            1,
            1,
            f"a run may have changed it; the earlier text stays in force (wakeful trust {SETTINGS_FILE} shows it)",
        )
        return self._settings, self.defaults, (problem,)

    @property
    def folder(self) -> FolderReading | None:
        """The last reading of the folder."""
        return self._folder

    @property
    def settings_file(self) -> Path:
        is_own = self.pools is None
        return find_settings_file(self._specs_dir, self._environ) if is_own else self._specs_dir.parent / SETTINGS_FILE

    def keep(self) -> None:
        """Save the readings for the next daemon, if they changed. Blocking. Any thread."""
        folder = self._folder
        if self._kept is None or folder is None:
            return
        if len(folder.files) != len(self._left) or any(
            self._left.get(file) is not one for file, one in folder.files.items()
        ):
            save_readings(self._kept, folder.files, *folder.basis)
            self._left = folder.files

    def _watched_folders(self, folder: FolderReading) -> tuple[str, ...]:
        """List the folders to watch: those of specs, wakeful.yaml, prompts and skills, and the specs' parent folder."""
        elsewhere = (*map(os.path.dirname, (*folder.agent_files, *folder.skill_folders)), *folder.skill_folders)
        around = (str(self._specs_dir.parent), str(self.settings_file.parent), *elsewhere)
        return tuple(dict.fromkeys((*folder.folders, *around)))
