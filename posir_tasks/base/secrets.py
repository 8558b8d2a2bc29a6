"""Redaction of secrets from printed, logged and stored text.

Secrets come from the environment (keys, tokens, passwords, proxies), from netrc and from
`add_secret`. Servers, proxies and libraries may repeat secrets in other forms: escaped, in Base64,
in upper or lower case.
"""

from __future__ import annotations

import base64
import json
import netrc
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote, unquote_plus

HIDDEN = "***"
#: Names of environment variables with secrets.
SECRET_VARIABLE = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS)$")
#: Minimum length of a secret, and minimum length to redact it within words.
MIN_LENGTH = 4
MIN_FRAGMENT = 8
#: Placeholder keys for servers that need none.
PLACEHOLDERS = frozenset({"none", "null", "empty", "dummy", "test", "token", "true", "false"})
#: Forms of uncollected secrets: markers, which most texts lack, and a pattern whose group is the
#: secret.
FORMS = (
    # The user in an address, possibly with a password.
    (("//",), r"(?<=//)([^\s/'\"<>]+)(?=@)"),
    (
        ("authorization",),
        r"\bauthorization[\"']?\s*[:=]\s*[\"']?((?:\w+\s+)?[\w.~+/=-]{8,})",
    ),
    (("bearer",), r"\bbearer\s+((?=\S*\d)[\w.~+/=-]{8,})"),
    (
        ("key=", "token=", "password=", "secret=", "signature=", "sig="),
        r"[?&](?:[\w-]*(?:key|token|password|secret|signature)|sig)=([^&#\s'\"<>]+)",
    ),
    (("hf_",), r"\b(hf_[a-z0-9]{16,})"),
    (("sk-",), r"\b(sk-(?=[\w-]*\d)[\w-]{16,})"),
)
#: Start of a word, also after an escape such as `\\x00`.
ESCAPES = r"(?:(?<![A-Za-z0-9])|(?<=\\x[0-9a-f]{2})|(?<=\\u[0-9a-f]{4})|(?<=%[0-9a-f]{2})|(?<=\\[abfnrtv0]))"  # noqa: E501


@dataclass(frozen=True)
class Forms:
    """All forms of the collected secrets."""

    roots: Sequence[str]
    """Lower-case substrings; each form contains at least one of them."""
    patterns: Sequence[re.Pattern[str]]
    """Patterns of the forms, the longest first."""


_added: set[str] = set()
_forms: Forms | None = None


def add_secret(secret: str | None) -> None:
    """Add a secret, such as a key from a file or an option."""
    if secret and secret.strip() not in _added:
        _added.add(secret.strip())
        collect_secrets()


def add_address(address: str | None) -> None:
    """Add the user and password in an address, such as a proxy's."""
    for secret in _find_user(address or ""):
        add_secret(secret)


def collect_secrets() -> None:
    """Read the secrets from the environment again."""
    global _forms
    secrets = {*_added, *_find_variables(), *_read_netrc(os.environ.get("NETRC", "~/.netrc"))}
    _forms = _build_forms(frozenset(secrets))


def redact(text: str) -> str:
    """Replace collected secrets and typical forms of secrets in a text with `***`."""
    safe_text = redact_collected(text)
    lower_text = safe_text.lower()
    for marks, pattern in FORMS:
        if any(mark in lower_text for mark in marks):
            safe_text = re.sub(pattern, _hide_form, safe_text, flags=re.IGNORECASE)
    return safe_text


def redact_collected(text: str) -> str:
    """Replace collected secrets in a text, in all likely forms, with `***`."""
    if _forms is None:
        collect_secrets()
    assert _forms
    lower_text = text.lower()
    # Substring search is much faster than patterns, and nearly all texts contain no secret.
    if any(root in lower_text for root in _forms.roots):
        for pattern in _forms.patterns:
            text = pattern.sub(HIDDEN, text)
    return text


def _hide_form(match: re.Match[str]) -> str:
    return match[0].replace(match[1], HIDDEN)


def _find_variables() -> Iterator[str]:
    for name, value in os.environ.items():
        if name.lower().endswith("_proxy"):
            yield from _find_user(value)
        elif SECRET_VARIABLE.search(name.upper()) and len(value.strip()) >= MIN_FRAGMENT:
            yield value.strip()


def _find_user(address: str) -> Iterator[str]:
    """Yield the user and password in an address: together, only the secret part, and encoded as in
    HTTP.
    """
    prefix = address.rpartition("@")[0]
    user = prefix.partition("//")[2] if "//" in prefix else prefix
    name, colon, password = user.partition(":")
    if user:
        yield user
        yield password if password else name
    if colon:
        yield base64.b64encode(unquote(user).encode()).decode()


@lru_cache(maxsize=4)
def _read_netrc(file: str) -> tuple[str, ...]:
    """Read the passwords in netrc, which the Hub's clients use."""
    with suppress(OSError, netrc.NetrcParseError, ValueError, RuntimeError):
        path = Path(file).expanduser()
        if path.is_file():
            hosts = netrc.netrc(str(path)).hosts.values()
            return tuple(password for _, _, password in hosts if password)
    return ()


@lru_cache(maxsize=8)
def _build_forms(secrets: frozenset[str]) -> Forms:
    forms: set[str] = set()
    for secret in secrets:
        if len(secret) >= MIN_LENGTH and secret.lower() not in PLACEHOLDERS:
            forms.update(_list_forms(secret))
    sorted_forms = sorted(forms, key=lambda form: (-len(form), form))
    roots: list[str] = []
    patterns: list[re.Pattern[str]] = []
    for form in reversed(sorted_forms):
        lower_text = form.lower()
        if not any(root in lower_text for root in roots):
            roots.append(lower_text)
    for form in sorted_forms:
        pattern = re.escape(form)
        # Short forms match only as words.
        if len(form) < MIN_FRAGMENT:
            pattern = rf"{ESCAPES}{pattern}(?![A-Za-z0-9])"
        patterns.append(re.compile(pattern, re.IGNORECASE))
    return Forms(roots, patterns)


def _list_forms(secret: str) -> Iterator[str]:
    """Yield the forms in which clients, servers and logs repeat a secret."""
    for plain in {secret, unquote(secret), unquote_plus(secret)}:
        yield plain
        yield from (text[1:-1] for text in (repr(plain), json.dumps(plain), ascii(plain)))
        yield from (escape(plain), quote(plain), quote(plain, safe=""), quote_plus(plain))
        raw = plain.encode("utf-8", "surrogateescape")
        # Also as the user or the password of HTTP basic authentication.
        for content in (raw, raw + b":", b":" + raw):
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                base64_text = encode(content).decode()
                yield from (base64_text, base64_text.rstrip("="))
        yield raw.hex()
