"""Suggestions after a traced run: the values and lines to add to a spec so that its runs are not denied again.

The API calls this for `wakeful trace`. A path inside root becomes a binding, so that a change of it wakes the session.
A path elsewhere goes under `allow`. `allow` and `network` are given whole, with their present values, because a key may
stand only once. File names are untrusted: they are quoted, and a name with pattern characters is not made a pattern.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from wakeful.core.looking.granted_places import find_cache
from wakeful.core.looking.patterns import contains
from wakeful.core.record.observations import Denied
from wakeful.core.spec.session import DEFAULT_EXCLUDES, Confinement, SessionSpec
from wakeful.specs.new_spec import name_binding, quote, spell_in_list

# The number of denied files in a folder from which the whole folder is suggested.
_MOST_OF_A_FOLDER = 4
# The least depth of a folder outside of root that is suggested for one of its files, so never /home/me or /var.
_DEEP = 3
# Text without quotes begins with one of these characters; YAML may read other text as a number or another type.
_WORD = re.compile(r"[A-Za-z_./]")
_NO_TEXT = ("true", "false", "yes", "no", "on", "off", "null", "y", "n", ".inf", ".nan", ".", "..")
_PATTERN = re.compile(r"[*?\[\]{}!\\]")
_UNPASTABLE = re.compile(r"[*?\\]")


class SpecSuggestion(Struct, frozen=True, kw_only=True):
    """The missing parts: bindings by their names, and the whole of `allow` and `network`, or None if unchanged."""

    bindings: dict[str, dict[str, str]] = {}
    allow: dict[str, tuple[str, ...]] | None = None
    network: bool | tuple[str, ...] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.bindings and self.allow is None and self.network is None


class _Place(NamedTuple):
    path: str
    is_folder: bool


def suggest(
    spec: SessionSpec, denied: Iterable[Denied], *, root: str, home: str, has_passed: bool = False
) -> SpecSuggestion:
    """Suggest additions to a spec. `root` and `home` are real paths, like the denied paths. Home is shown as ~.

    `has_passed`: the run succeeded in spite of these denials.
    """
    asked = [one for one in denied if one.place is not None]
    places = [one for one in asked if one.access != "connect" and _UNPASTABLE.search(one.place or "") is None]
    caches = {one: cache for one in places if (cache := find_cache(one.place or "")) is not None}
    written = [_Place(one.place or "", one.is_folder) for one in places if one.access == "write" and one not in caches]
    written = _fold((*written, *(_Place(cache, True) for cache in caches.values())), root)
    read = _fold(
        (
            _Place(one.place or "", one.is_folder)
            for one in places
            if one.access in ("read", "run") and one not in caches
        ),
        root,
    )
    read = [place for place in read if not any(_covers(other, place) for other in written)]
    # A cache is only for the program itself. It is neither a binding nor an output.
    bound = {place for place in (*read, *written) if _can_bind(place.path, root) and place.path not in caches.values()}
    return SpecSuggestion(
        bindings=_name_bindings(
            spec, root, [place for place in read if place in bound], [place for place in written if place in bound]
        ),
        allow=_join_allow(
            spec.confinement,
            [_shorten(place.path, home) for place in read if place not in bound],
            [
                _spell_cache(place.path, root) if place.path in caches.values() else _open_for(place, root)
                for place in written
                if place not in bound
            ],
            home,
        ),
        # A run that passed without the network does not need it.
        network=None
        if has_passed
        else _find_network(spec.confinement.network, [one for one in asked if one.access == "connect"]),
    )


def spell(paste: SpecSuggestion) -> list[str]:
    """Write the suggestion as lines of a spec."""
    lines = []
    if paste.bindings:
        lines.append("bindings:")
        for name, keys in paste.bindings.items():
            told = ", ".join(f"{key}: {_spell(value)}" for key, value in keys.items())
            lines.append(f"  {name}: {{{told}}}")
    if paste.allow is not None:
        lines.append("allow:")
        lines += [f"  {key}: [{', '.join(map(_spell, places))}]" for key, places in paste.allow.items()]
    if paste.network is not None:
        lines.append(
            "network: true" if isinstance(paste.network, bool) else f"network: [{', '.join(map(quote, paste.network))}]"
        )
    return lines


def _spell(text: str) -> str:
    """Write text without quotes if YAML reads it back unchanged; else quote it."""
    return spell_in_list(text) if _WORD.match(text) and text.lower() not in _NO_TEXT else quote(text)


def _fold(places: Iterable[_Place], root: str) -> list[_Place]:
    """Remove places that lie in others, and replace many files of a folder by the folder."""
    found = set(places)
    counts = Counter(posixpath.dirname(place.path) for place in found if not place.is_folder)
    found |= {
        _Place(folder, True)
        for folder, files in counts.items()
        if files >= _MOST_OF_A_FOLDER and contains(root, folder) and folder != root
    }
    return sorted(place for place in found if not any(other != place and _covers(other, place) for other in found))


def _covers(wide: _Place, place: _Place) -> bool:
    return wide == place or (wide.is_folder and contains(wide.path, place.path))


def _can_bind(path: str, root: str) -> bool:
    """Can this path be a binding?

    It must be inside root, have no pattern characters, and not be excluded by default.
    """
    if not contains(root, path) or path == root:
        return False
    below = posixpath.relpath(path, root)
    # A `~` at the beginning would mean the home folder.
    return (
        _PATTERN.search(below) is None
        and not below.startswith("~")
        and not any(part in DEFAULT_EXCLUDES for part in below.split("/"))
    )


def _open_for(place: _Place, root: str) -> str:
    """Return the folder of a file, because programs replace a file by renaming another over it.

    If that is root, a folder above it or near the top, return the file itself.
    """
    folder = posixpath.dirname(place.path)
    return place.path if place.is_folder or contains(folder, root) or folder.count("/") < _DEEP else folder


def _name_bindings(
    spec: SessionSpec, root: str, read: list[_Place], written: list[_Place]
) -> dict[str, dict[str, str]]:
    taken = {binding.name for binding in spec.bindings}
    named: dict[str, dict[str, str]] = {}
    for places, keys, otherwise in ((read, {}, "input"), (written, {"access": "write"}, "output")):
        for path, is_folder in places:
            below = posixpath.relpath(path, root)
            named[name_binding(below, otherwise, taken)] = {"file": f"{below}/**" if is_folder else below, **keys}
    return named


def _join_allow(
    present: Confinement, read: list[str], written: list[str], home: str
) -> dict[str, tuple[str, ...]] | None:
    """Join the present `allow` with the additions. None if there is nothing to add."""
    if not read and not written:
        return None
    joined = {"read": (*present.allow_read, *read), "write": (*present.allow_write, *written)}
    return {
        key: tuple(dict.fromkeys(_shorten(path, home) for path in places)) for key, places in joined.items() if places
    }


def _find_network(present: bool | tuple[str, ...], asked: list[Denied]) -> bool | tuple[str, ...] | None:
    if not asked:
        return None
    if any(one.place == "*" for one in asked):
        return True
    addresses = () if isinstance(present, bool) else present
    return tuple(dict.fromkeys((*addresses, *(one.place or "" for one in asked))))


def _spell_cache(path: str, root: str) -> str:
    """Write a cache inside the project relative to root, so that it moves with the project."""
    return posixpath.relpath(path, root) if contains(root, path) and path != root else path


def _shorten(path: str, home: str) -> str:
    return f"~{path[len(home) :]}" if home != "/" and path.startswith(f"{home}/") else path
