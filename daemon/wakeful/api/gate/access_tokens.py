"""Makes, stores, finds and revokes the API tokens that people hand out. One file of the state folder has their hashes.

A token is an id and 256 random bits. Its text is shown once, when it is made. The file is checked for every request, so
a token that is revoked, or removed from the file by hand, stops working with the next request. If other users can read
the file, or it cannot be parsed, no token works. A request shows its token in the header `Authorization: Bearer`, and
in no other place. scopes.py decides which routes a token reaches. Tokens of runs are not kept here.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

import msgspec
from msgspec import Struct
from starlette.datastructures import Headers, QueryParams
from starlette.types import Scope as Asked

from wakeful.api.problems import Unauthorised
from wakeful.errors import CallerError, OperatorError
from wakeful.system.private_files import NotOursAlone, PrivateFile, replace_private
from wakeful.verbs.verb import Scope

TOKENS_FILE = "tokens.json"
# The prefix by which people, and programs that search for leaked secrets, recognise such a token.
PREFIX = "wakeful"
SECRET_BYTES = 32
ID_BYTES = 4
MOST_TOKENS = 1_000
LONGEST_NOTE = 200
# A browser that was not used for this long is logged out.
UNUSED_MICROSECONDS = 30 * 86400 * 1_000_000
# The shortest time between two writes of a browser's last use.
USE_NOTED_MICROSECONDS = 86400 * 1_000_000
# A digest that no secret has. The secret of an unknown id is compared with it, so that the duration does not reveal
# which ids exist.
_NOBODY = "0" * 64
# Query parameters in which clients of other programs put tokens.
TOKEN_PARAMETERS = frozenset(("token", "access_token", "api_key", "apikey", "authorization", "bearer", "code"))


class TokensUnreadable(OperatorError):
    """The file of tokens cannot be trusted or understood."""


class TokensUnwritten(OperatorError):
    """The file of tokens could not be replaced."""


class Token(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token as it is stored.

    `session` is an id, so a token follows a rename, and does not reach a later session of the same name.
    """

    id: str
    digest: str
    scopes: tuple[Scope, ...]
    # Microseconds UTC. `expires_at` is None if the token is valid until it is revoked.
    made_at: int
    expires_at: int | None = None
    session: str | None = None
    note: str | None = None
    # The person whose role limits the token, and whom the log names. None if it belongs to the daemon's owner.
    person: str | None = None
    # The digest of the cookie of a browser's token. That token does not work without the cookie. None for other tokens.
    cookie: str | None = None
    # When a browser's token was last used, to the day. None for other tokens.
    used_at: int | None = None
    # The id of the token that was exchanged for this browser's token. When the parent ends, so does this token.
    parent: str | None = None

    def is_over(self, now: int) -> bool:
        if self.used_at is not None and now >= self.used_at + UNUSED_MICROSECONDS:
            return True
        return self.expires_at is not None and now >= self.expires_at

    def is_use_due(self, now: int) -> bool:
        """Must this use of a browser be written to the file? That is done once a day."""
        return self.used_at is not None and now >= self.used_at + USE_NOTED_MICROSECONDS

    def is_cookie(self, shown: str | None) -> bool:
        """Is this the cookie that was given with the token? Always True for a token that is not a browser's."""
        return self.cookie is None or hmac.compare_digest(_digest(shown or ""), self.cookie)


class BrowserRights(Struct, frozen=True, kw_only=True):
    """The rights of a browser: the rights of the person who logs in, or of the token that is exchanged."""

    scopes: tuple[Scope, ...] = ("admin",)
    session: str | None = None
    expires_at: int | None = None
    person: str | None = None
    parent: str | None = None


class Tokens:
    """The tokens of one state folder. `find` and the lists read one small file. A change waits for the disk, so it is
    made in a thread. Only one change is made at a time (`ChangesInTurn`)."""

    def __init__(self, state: Path) -> None:
        self.path = state / TOKENS_FILE
        self._file: PrivateFile[dict[str, Token]] = PrivateFile(self.path, _decode, {})

    def list_all(self) -> list[Token]:
        return sorted(self._read().values(), key=lambda one: (one.made_at, one.id))

    def find(self, text: str, now: int) -> Token | None:
        """Find the token with this text. None if there is no such token, or it has expired."""
        prefix, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        known = self._read().get(token_id)
        is_same = hmac.compare_digest(_digest(secret), known.digest if known is not None else _NOBODY)
        is_good = known is not None and is_same and prefix == PREFIX and not self._is_over(known, now)
        return known if is_good else None

    def _is_over(self, token: Token, now: int) -> bool:
        if token.is_over(now) or token.parent is None:
            return token.is_over(now)
        parent = self._read().get(token.parent)
        return parent is None or parent.is_over(now)

    def make(
        self,
        scopes: tuple[Scope, ...],
        now: int,
        *,
        session: str | None,
        expires_at: int | None,
        note: str | None,
        person: str | None = None,
    ) -> tuple[Token, str]:
        """Make a token. It is durable when this returns. Returns the token and its text. The text is not stored, so it
        cannot be shown again."""
        token_id, secret = self._draw()
        token = Token(
            id=token_id,
            digest=_digest(secret),
            scopes=scopes,
            made_at=now,
            expires_at=expires_at,
            session=session,
            note=note,
            person=person,
        )
        self._write({**self._read(), token_id: token})
        return token, f"{PREFIX}_{token_id}_{secret}"

    def make_for_browser(
        self, rights: BrowserRights, now: int, *, note: str | None, shown: str | None = None
    ) -> tuple[str, str]:
        """Make a token and a cookie for a browser, which work only together. Also removes expired browser tokens.

        `shown` is the cookie that the browser already has, if any. If it comes from a login of the same person in
        another tab, it is used again. All tabs share their cookies, so a new cookie would log the other tab out.
        """
        token_id, secret = self._draw()
        cookie = shown if shown is not None and self._is_logged_in(shown, rights, now) else None
        cookie = cookie or secrets.token_urlsafe(SECRET_BYTES)
        token = Token(
            id=token_id,
            digest=_digest(secret),
            scopes=rights.scopes,
            made_at=now,
            expires_at=rights.expires_at,
            session=rights.session,
            note=note,
            person=rights.person,
            cookie=_digest(cookie),
            used_at=now,
            parent=rights.parent,
        )
        kept = {one.id: one for one in self._read().values() if one.cookie is None or not self._is_over(one, now)}
        self._write({**kept, token_id: token})
        return f"{PREFIX}_{token_id}_{secret}", cookie

    def _is_logged_in(self, cookie: str, rights: BrowserRights, now: int) -> bool:
        """Does a login of the same person have this cookie? The cookie of another person is not used again, because
        that person knows it."""
        return any(
            one.cookie is not None
            and one.is_cookie(cookie)
            and (one.person, one.parent) == (rights.person, rights.parent)
            and not self._is_over(one, now)
            for one in self._read().values()
        )

    def revoke_browsers(self) -> int:
        """Log every browser out. Returns the number of browsers."""
        known = self._read()
        kept = {one.id: one for one in known.values() if one.cookie is None}
        if len(kept) < len(known):
            self._write(kept)
        return len(known) - len(kept)

    def note_use(self, token_id: str, now: int) -> None:
        """Note that a browser was used, at most once a day. If the browser was logged out a moment ago, do nothing."""
        known = self._read()
        token = known.get(token_id)
        if token is not None and token.is_use_due(now):
            self._write({**known, token_id: msgspec.structs.replace(token, used_at=now)})

    def has_browser(self, now: int) -> bool:
        """Is any browser logged in?"""
        return any(one.cookie is not None and not self._is_over(one, now) for one in self._read().values())

    def _draw(self) -> tuple[str, str]:
        """Draw an id and a secret for a new token. Raises CallerError if there are too many tokens."""
        known = self._read()
        if len(known) >= MOST_TOKENS:
            raise CallerError(f"there are {len(known)} tokens already; revoke unused ones: wakeful token list")
        token_id = next(one for one in iter(lambda: secrets.token_hex(ID_BYTES), "") if one not in known)
        return token_id, secrets.token_urlsafe(SECRET_BYTES)

    def revoke(self, token_id: str) -> None:
        known = dict(self._read())
        if known.pop(token_id, None) is None:
            raise CallerError(f"no token has the id {token_id!r}; wakeful token list shows them")
        self._write(known)

    def revoke_of(self, person: str) -> int:
        """Revoke every token of a person. Returns the number of tokens."""
        known = self._read()
        kept = {one.id: one for one in known.values() if one.person != person}
        if len(kept) < len(known):
            self._write(kept)
        return len(known) - len(kept)

    def _read(self) -> dict[str, Token]:
        try:
            return self._file.read()
        except NotOursAlone as error:
            raise TokensUnreadable(f"{error}: no token is valid; check the file, then chmod 600 {self.path}") from error
        except (OSError, msgspec.DecodeError) as error:
            raise TokensUnreadable(
                f"{self.path} cannot be read ({error}): no token is valid; remove the file and make new tokens"
            ) from error

    def _write(self, known: dict[str, Token]) -> None:
        content = msgspec.json.format(msgspec.json.encode(list(known.values())), indent=1) + b"\n"
        try:
            replace_private(self.path, content)
        except OSError as error:
            raise TokensUnwritten(f"{self.path} cannot be written: {error.strerror}; no token was changed") from error


def _decode(content: bytes) -> dict[str, Token]:
    return {one.id: one for one in msgspec.json.decode(content, type=list[Token])}


def is_token(text: str) -> bool:
    """Does the text look like a token that people hand out? The token of a run does not."""
    return text.startswith(f"{PREFIX}_")


def _digest(secret: str) -> str:
    """Return the SHA-256. A slower hash would not help, because 256 random bits cannot be guessed anyway."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def find_shown(scope: Asked) -> str | None:
    """Read the text of the token. None if there is no such header. Raises Unauthorised if the header is malformed."""
    shown = Headers(scope=scope).getlist("authorization")
    if not shown:
        return None
    kind, _, text = shown[0].partition(" ")
    # With two headers, it would be unclear which one counts.
    if len(shown) > 1 or kind.lower() != "bearer":
        raise Unauthorised("one header is expected, Authorization: Bearer TOKEN")
    return text.strip()


def refuse_in_address(scope: Asked) -> None:
    """Raise Unauthorised if the address has a token, even a valid one. An address ends up in browser histories, in logs
    and on linked pages.
    """
    names = {name.lower() for name in QueryParams(scope["query_string"])}
    if names & TOKEN_PARAMETERS:
        raise Unauthorised(
            "a token is not taken from an address; send it as a header, Authorization: Bearer TOKEN, "
            "and revoke this one",
            "address",
        )
