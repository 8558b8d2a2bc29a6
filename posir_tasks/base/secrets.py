"""The secrets of this process, and their removal from whatever is shown, logged or stored.

Secrets are collected from the environment (keys, tokens, passwords, proxies), from netrc, and from
whoever reads one elsewhere (`add_secret`). A server, a proxy or a library may repeat a secret in
another form: escaped, in base64, in other cases.
"""

from __future__ import annotations

import base64
import json
import netrc
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote, unquote_plus

HIDDEN = "***"
#: Names of environment variables whose values are secrets.
SECRET_VARIABLE = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS)$")
PROXY_VARIABLE = re.compile(r"_proxy$", re.IGNORECASE)
#: Lengths of a secret in characters: a shorter one is no secret but a word, one up to
#: `MIN_FRAGMENT` is hidden as a word only.
MIN_LENGTH = 4
MIN_FRAGMENT = 8
#: What servers without keys are given instead of one.
PLACEHOLDERS = frozenset({"none", "null", "empty", "dummy", "test", "token", "true", "false"})
#: Secrets that nobody has stated, by their form: what each has, so that most texts are not
#: searched, and its pattern, in which the group is what is hidden.
FORMS = (
    # The user in an address, with or without a password.
    (("//",), r"(?<=//)(?P<user>[^\s/'\"<>]+)(?=@)"),
    (("bearer",), r"\bbearer\s+(?P<bearer>(?=\S*\d)[\w.~+/=-]{8,})"),
    (
        ("authorization",),
        r"\bauthorization[\"']?\s*[:=]\s*[\"']?(?P<header>(?:\w+\s+)?[\w.~+/=-]{8,})",
    ),
    (
        ("key=", "token=", "password=", "secret=", "signature=", "sig="),
        r"[?&](?:[\w-]*(?:key|token|password|secret|signature)|sig)=(?P<field>[^&#\s'\"<>]+)",
    ),
    (("hf_",), r"\b(?P<hub>hf_[a-z0-9]{16,})"),
    (("sk-",), r"\b(?P<key>sk-(?=[\w-]*\d)[\w-]{16,})"),
)
#: The end of an escape such as `\\x00`, after which a word may begin.
ESCAPES = r"(?:(?<![A-Za-z0-9])|(?<=\\x[0-9a-f]{2})|(?<=\\u[0-9a-f]{4})|(?<=%[0-9a-f]{2})|(?<=\\[abfnrtv0]))"  # noqa: E501


@dataclass(frozen=True)
class Forms:
    """All forms of the collected secrets."""

    roots: tuple[str, ...]
    """The shortest forms in lower case; every other form contains one of them."""
    patterns: tuple[re.Pattern[str], ...]
    """A pattern for each form, the longest first."""


_added: set[str] = set()
_forms: Forms | None = None


def add_secret(secret: str | None) -> None:
    """Hide a text from now on, such as a key that was read from a file or given as an option."""
    if secret and secret.strip() not in _added:
        _added.add(secret.strip())
        collect_secrets()


def add_address(address: str | None) -> None:
    """Hide user and password of an address, such as that of a proxy, from now on."""
    for secret in _find_user(address or ""):
        add_secret(secret)


def collect_secrets() -> None:
    """Read the secrets of the environment again."""
    global _forms
    secrets = {*_added, *_find_variables(), *_read_netrc(os.environ.get("NETRC", "~/.netrc"))}
    _forms = _build_forms(frozenset(secrets))


def redact(text: str) -> str:
    """Replace secrets in a text by `***`: the collected ones, and those that are
    known by their form.
    """
    redacted = redact_collected(text)
    lowered = redacted.lower()
    found = [pattern for marks, pattern in FORMS if any(mark in lowered for mark in marks)]
    if found:
        redacted = re.sub("|".join(found), _hide_form, redacted, flags=re.IGNORECASE)
    return redacted


def redact_collected(text: str) -> str:
    """Replace the collected secrets in a text by `***`, in all forms that are
    likely.
    """
    if _forms is None:
        collect_secrets()
    assert _forms
    lowered = text.lower()
    # Nearly all texts have none, and searching for a text is much faster than matching a pattern.
    if any(root in lowered for root in _forms.roots):
        for pattern in _forms.patterns:
            text = pattern.sub(HIDDEN, text)
    return text


def _hide_form(match: re.Match[str]) -> str:
    start, end = match.span(match.lastgroup or 0)
    return f"{match[0][: start - match.start()]}{HIDDEN}{match[0][end - match.start() :]}"


def _find_variables() -> Iterator[str]:
    for name, value in os.environ.items():
        if PROXY_VARIABLE.search(name):
            yield from _find_user(value)
        elif SECRET_VARIABLE.search(name.upper()) and len(value.strip()) >= MIN_FRAGMENT:
            yield value.strip()


def _find_user(address: str) -> Iterator[str]:
    """Yield user and password of an address as they are sent, and the password, or the user if
    there is none.
    """
    before = address.rpartition("@")[0]
    user = before.partition("//")[2] if "//" in before else before
    name, colon, password = user.partition(":")
    if user:
        yield user
        yield password if password else name
    if colon:
        yield base64.b64encode(unquote(user).encode()).decode()


@lru_cache(maxsize=4)
def _read_netrc(file: str) -> tuple[str, ...]:
    """Read the passwords of netrc, from which the clients of the Hub read them."""
    with suppress(OSError, netrc.NetrcParseError, ValueError, RuntimeError):
        path = Path(file).expanduser()
        if path.is_file():
            hosts = netrc.netrc(str(path)).hosts.values()
            return tuple(password for _, _, password in hosts if password)
    return ()


@lru_cache(maxsize=8)
def _build_forms(secrets: frozenset[str]) -> Forms:
    forms = {form for secret in secrets if _is_secret(secret) for form in _list_forms(secret)}
    ordered = sorted(forms, key=lambda form: (-len(form), form))
    roots: list[str] = []
    for form in reversed(ordered):
        lowered = form.lower()
        if not any(root in lowered for root in roots):
            roots.append(lowered)
    patterns = (re.compile(_match_form(form), re.IGNORECASE) for form in ordered)
    return Forms(tuple(roots), tuple(patterns))


def _is_secret(text: str) -> bool:
    return len(text) >= MIN_LENGTH and text.lower() not in PLACEHOLDERS


def _match_form(form: str) -> str:
    """Build the pattern of a form, as a word if it is so short that it may be a part of other
    words.
    """
    if len(form) >= MIN_FRAGMENT:
        return re.escape(form)
    return rf"{ESCAPES}{re.escape(form)}(?![A-Za-z0-9])"


def _list_forms(secret: str) -> Iterator[str]:
    """Yield a secret as clients, servers and logs may show it."""
    for plain in {secret, unquote(secret), unquote_plus(secret)}:
        yield from (
            plain,
            repr(plain)[1:-1],
            json.dumps(plain)[1:-1],
            escape(plain),
            ascii(plain)[1:-1],
        )
        yield from (quote(plain), quote(plain, safe=""), quote_plus(plain))
        raw = plain.encode("utf-8", "surrogateescape")
        # As the user or the password of a basic login, too.
        for content in (raw, raw + b":", b":" + raw):
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                encoded = encode(content).decode()
                yield from (encoded, encoded.rstrip("="))
        yield raw.hex()
