"""The secrets of one connection, and where they occur in a text.

Only hashes are kept. A text is searched at the boundaries of its words, for the lengths of the known secrets (if these
are many, for parts of few words), so that a secret is found whatever surrounds it (`/rec/NAME-1.flv`, `live_NAME`) and
whatever it contains. Inside a word (`onNAME`) only secrets with letters and digits are searched: if every name were, a
stream called "on" would turn half of all texts into hashes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from rtmp_spark.codec.json_value import SavedFields
from rtmp_spark.codec.limits import REDACT_LENGTHS, REDACT_WORDS

PREFIX: Final = "key-"
TOKEN_BYTES: Final = 10  # of the hash
TOKEN_CHARS: Final = 8 * TOKEN_BYTES // 5  # in base 32
TOKEN: Final = re.compile(PREFIX + f"[a-z2-7]{{{TOKEN_CHARS}}}")
Form = tuple[str, int]  # hash and length
SavedSecrets = SavedFields  # tokens, lengths, and forms by token
# A hash is no text of a peer; "10 s" is a time, even if a stream is named "s".
_LETTERS: Final = r"(?:[^\W_]|[\udc80-\udcff])+"  # and bytes that are not UTF-8
_WORD: Final = re.compile(rf"(?P<kept>{TOKEN.pattern}|(?<=[0-9] )m?s\b)|{_LETTERS}")
_MEDIA_FILE: Final = re.compile(r"(?:mp4|flv|mp3|f4v):|\.(?:mp4|flv|f4v|mp3|m4v|mov|smil|stream)$")
_CORE: Final = re.compile(rf"{_LETTERS}(?:.*{_LETTERS})?", re.DOTALL)
_LONG_PART: Final = 8  # a part of a path that is at least this long may be the secret in a name like NAME/720p
# Letters and digits of a secret that is also found inside a longer word (onNAME); "live" is in "alive".
_LEAST_GLUED: Final = 8
# Characters of the word beside the secret: at its beginning or end, and on both sides. Each place costs a digest.
_MOST_GLUE: Final = 6
_MOST_AROUND: Final = 2
_MOST_LONG_WORDS: Final = 64  # of a text


class Secret(NamedTuple):
    token: str
    forms: tuple[Form, ...]
    was_hashed: bool  # it was read from a saved state: its forms are known only if they were saved too


class KnownSecrets:
    """`tokens` holds the hashes of the secrets in every form in which they are searched; `forms`, those of secrets that
    facts contain which are saved before they are read: `add` will receive only the hash of such a secret."""

    __slots__ = ("_digests", "_saves_forms", "forms", "lengths", "tokens")

    def __init__(self) -> None:
        self.tokens: set[str] = set()
        self.forms: dict[str, list[Form]] = {}
        self.lengths: list[int] = []  # of the forms in `tokens`, the longest first; not all if `has_many_lengths`
        self._digests: set[bytes] | None = None  # the tokens as bytes, from the first search with many lengths on
        self._saves_forms = False

    @property
    def has_many_lengths(self) -> bool:
        return len(self.lengths) >= REDACT_LENGTHS

    def __contains__(self, token: str) -> bool:
        return token in self.tokens

    def add(self, secret: Secret) -> None:
        token, forms, was_hashed = secret
        if not token or token in self.tokens:
            return
        if was_hashed:
            forms = (*forms, *self.forms.get(token, ()))
        if self._saves_forms:
            if not was_hashed:
                self.forms[token] = list(forms)
        elif was_hashed:
            self.forms.pop(token, None)
        for form, length in forms:
            self.tokens.add(form)
            if self._digests is not None:
                self._digests |= _digests([form])
            if not self.has_many_lengths and length not in self.lengths:
                self.lengths = sorted([*self.lengths, length], reverse=True)

    def hidden(self, text: str, token_of: Callable[[str], str], digest_of: Callable[[str], bytes]) -> str:
        """The text with the known secrets in it replaced by their hashes; if two overlap, the first and longest is."""
        words = Words(text)
        if self.has_many_lengths:
            if self._digests is None:
                self._digests = _digests(self.tokens)
            digests = self._digests  # a digest costs a quarter of its token, and there are many parts
            spans = [
                (start, end) for start, end in words.spans_of_few(self.lengths) if digest_of(text[start:end]) in digests
            ]
        else:
            spans = [span for span in words.spans_of(self.lengths) if token_of(text[slice(*span)]) in self.tokens]
        shown, at = [], 0
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            if start >= at:
                shown += [text[at:start], token_of(text[start:end])]
                at = end
        return "".join([*shown, text[at:]]) if shown else text

    def clear(self) -> None:
        self.tokens.clear()
        self.lengths.clear()
        self._digests = None

    def copy_for_pending(self) -> KnownSecrets:
        """A copy that keeps the forms of what is added to it."""
        copy = KnownSecrets.resume(self.state(self.forms))
        copy._saves_forms = True
        return copy

    def state(self, forms: dict[str, list[Form]]) -> SavedSecrets:
        return sorted(self.tokens), list(self.lengths), dict(forms)

    @classmethod
    def resume(cls, state: SavedSecrets) -> KnownSecrets:
        own = cls()
        tokens, lengths, pending = state
        own.tokens, own.lengths = set(tokens), list(lengths)
        own.forms = {token: [(form, length) for form, length in forms] for token, forms in pending.items()}
        return own


class AddedSecrets(KnownSecrets):
    """Secrets in the order in which they were added, for a caller that adds them again."""

    __slots__ = ("added",)

    def __init__(self) -> None:
        super().__init__()
        self.added: list[Secret] = []

    def add(self, secret: Secret) -> None:
        self.added.append(secret)
        super().add(secret)


class Words:
    """Where a text has words: a secret begins and ends where words do, or is the whole text, or is a part of a longer
    word and has letters and digits."""

    __slots__ = ("_ends", "_long", "_starts", "_text")

    def __init__(self, text: str) -> None:
        spans = [found.span() for found in _WORD.finditer(text) if not found["kept"]]
        self._text = text
        self._starts = [start for start, _ in spans]
        self._ends = {end for _, end in spans}
        long = (span for span in spans if span[1] - span[0] > _LEAST_GLUED and _is_mixed(text[slice(*span)]))
        self._long = list(islice(long, _MOST_LONG_WORDS))

    def starts_of(self, length: int) -> list[int]:
        """Where parts of this length begin."""
        if len(self._text) <= length:
            return [0] * (len(self._text) == length)
        starts = [start for start in self._starts if start + length in self._ends]
        return starts + self._glued(length) if self._long and length >= _LEAST_GLUED else starts

    def _glued(self, length: int) -> list[int]:
        """Where parts of this length begin that have letters and digits and are a part of a longer word."""
        found: list[int] = []
        for start, end in self._long:
            beside = end - start - length
            if 0 < beside <= _MOST_GLUE:
                places = range(start, start + beside + 1, 1 if beside <= _MOST_AROUND else beside)
                found += [at for at in places if _is_mixed(self._text[at : at + length])]
        return found

    def spans_of(self, lengths: Iterable[int]) -> Iterator[tuple[int, int]]:
        return ((start, start + length) for length in lengths for start in self.starts_of(length))

    def spans_of_few(self, lengths: Iterable[int]) -> Iterator[tuple[int, int]]:
        """The whole text, where parts of few words begin and end, and where parts of one word with these lengths do."""
        yield 0, len(self._text)
        for length in lengths:
            if self._long and length >= _LEAST_GLUED:
                yield from ((at, at + length) for at in self._glued(length))
        ends = sorted(self._ends)
        for number, start in enumerate(self._starts):
            for end in ends[number : number + REDACT_WORDS]:
                yield start, end

    def parts(self, length: int) -> Iterator[str]:
        return (self._text[start : start + length] for start in self.starts_of(length))


def _is_mixed(text: str) -> bool:
    """Whether a word has letters and digits, as generated names have."""
    return not text.isalpha() and not text.isdigit()


def _digests(tokens: Iterable[str]) -> set[bytes]:
    return {base64.b32decode(token[len(PREFIX) :].upper()) for token in tokens if TOKEN.fullmatch(token)}


def secret_of(text: str, token_of: Callable[[str], str]) -> Secret:
    token = token_of(text)
    if token == text:
        return Secret(token, ((token, len(token)),), True)
    return Secret(token, tuple((token_of(form), len(form)) for form in _forms(text)), False)


def _forms(secret: str) -> Iterator[str]:
    """The secret, and the same without what does not belong to the name of the stream in it."""
    plain = unquote(secret) if "%" in secret else secret
    bare = _MEDIA_FILE.sub("", plain)
    forms = {secret, plain, secret.rpartition(":")[2], bare}
    forms.update(part for part in bare.split("/") if len(part) >= _LONG_PART)
    forms.add(bare.rpartition("/")[2])
    if not plain.isalnum():
        forms |= {quote(plain, safe="", errors="replace"), quote(plain, errors="replace")}
        forms |= {found[0] for found in map(_CORE.search, forms) if found is not None}
    return (form for form in forms if form)
