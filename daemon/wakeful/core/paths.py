"""Where paths lie to each other, by their text alone: nothing is looked at, and no link is followed."""

from __future__ import annotations


def contains(folder: str, path: str) -> bool:
    """Is `path` this folder, or inside of it? Both without dots and without a slash at their end."""
    return path == folder or path.startswith("/" if folder == "/" else f"{folder}/")
