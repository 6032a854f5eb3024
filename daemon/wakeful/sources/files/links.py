"""Which links lead to a file: a file that changes somewhere else changes what its links mean.

Owned by the file source, on the loop. Looks tell where each link led; a hint about a file is then one about its links as
well. Two paths may lead to each other in turn, so that nothing here follows links without counting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Links:
    def __init__(self) -> None:
        # A file behind links -> the links; and each link -> the file it led to when it was last looked at.
        self._links: dict[str, set[str]] = {}
        self._led: dict[str, str] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._links

    def note(self, visited: Mapping[str, object], links: Mapping[str, str]) -> None:
        """Record the result of a look. `links` maps each link to its file; any other visited path is no link now."""
        for link in self._led.keys() & visited.keys() if self._led else ():
            if self._led[link] != links.get(link):
                self._drop(link)
        for link, real in links.items():
            self._led[link] = real
            self._links.setdefault(real, set()).add(link)

    def _drop(self, link: str) -> None:
        real = self._led.pop(link)
        self._links[real].discard(link)
        if not self._links[real]:
            del self._links[real]

    def list_with(self, path: str) -> Iterable[str]:
        """A path and all links that lead to it, each once."""
        found = {path: None}
        for one in (ahead := [path]):
            for link in self._links.get(one, ()):
                if link not in found:
                    found[link] = None
                    ahead.append(link)
        return found
