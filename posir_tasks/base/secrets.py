"""Redact secrets in printed, logged and stored text.

Secrets come from environment variables (keys, tokens, passwords, proxies), netrc and `add_secret`.
Servers, proxies and libraries may repeat a secret in another form: escaped, in Base64, in upper or
lower case.
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
#: Minimum length of a secret.
MIN_LENGTH = 4
#: Minimum length of a secret that is also redacted within words.
MIN_FRAGMENT = 8
#: Placeholders for servers that need no key.
PLACEHOLDERS = frozenset({"none", "null", "empty", "dummy", "test", "token", "true", "false"})
#: Patterns of secrets that were not collected. Each has markers, which most texts do not contain,
#: and a regular expression whose group is the secret.
SECRET_PATTERNS = (
    # The user in a URL, possibly with a password.
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
    # A pattern that begins with a letter is searched fast, and results contain `hf_subset`.
    (("hf_",), r"(hf_(?<=\bhf_)[a-z0-9]{16,})"),
    (("sk-",), r"(sk-(?<=\bsk-)(?=[\w-]*\d)[\w-]{16,})"),
)
#: Start of a word, which may follow an escape such as `\\x00`.
WORD_START = r"(?:(?<![A-Za-z0-9])|(?<=\\x[0-9a-f]{2})|(?<=\\u[0-9a-f]{4})|(?<=%[0-9a-f]{2})|(?<=\\[abfnrtv0]))"  # noqa: E501


@dataclass(frozen=True)
class SecretForms:
    """All forms of the collected secrets."""

    roots: Sequence[str]
    """Lower-case substrings. Each form contains at least one."""
    patterns: Sequence[re.Pattern[str]]
    """Patterns of the forms, longest first."""


_added: set[str] = set()
_forms: SecretForms | None = None


def add_secret(secret: str | None) -> None:
    """Register a secret, such as a key from a file or an option."""
    if secret and secret.strip() not in _added:
        _added.add(secret.strip())
        collect_secrets()


def add_address(address: str | None) -> None:
    """Register the user and password in a URL, such as that of a proxy."""
    for secret in _find_credentials(address or ""):
        add_secret(secret)


def collect_secrets() -> None:
    """Update the secrets from the environment."""
    global _forms
    secrets = {
        *_added,
        *_find_secret_variables(),
        *_read_netrc(os.environ.get("NETRC", "~/.netrc")),
    }
    _forms = _build_forms(frozenset(secrets))


def redact(text: str) -> str:
    """Replace collected secrets, and text that looks like a secret, with `***`."""
    safe_text = redact_collected(text)
    lower_text = safe_text.lower()
    for marks, pattern in SECRET_PATTERNS:
        if any(mark in lower_text for mark in marks) and re.search(pattern, lower_text):
            safe_text = re.sub(pattern, _hide_match, safe_text, flags=re.IGNORECASE)
    return safe_text


def redact_collected(text: str) -> str:
    """Replace collected secrets, in all likely forms, with `***`."""
    if _forms is None:
        collect_secrets()
    assert _forms
    lower_text = text.lower()
    # Few texts contain a secret, and substring search is much faster than patterns.
    if any(root in lower_text for root in _forms.roots):
        for pattern in _forms.patterns:
            text = pattern.sub(HIDDEN, text)
    return text


def _hide_match(match: re.Match[str]) -> str:
    return match[0].replace(match[1], HIDDEN)


def _find_secret_variables() -> Iterator[str]:
    for name, value in os.environ.items():
        if name.lower().endswith("_proxy"):
            yield from _find_credentials(value)
        elif SECRET_VARIABLE.search(name.upper()) and len(value.strip()) >= MIN_FRAGMENT:
            yield value.strip()


def _find_credentials(address: str) -> Iterator[str]:
    """Yield the credentials in a URL: user and password, the password or else the user, and the
    encoding of HTTP basic authentication.
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
    """Read the passwords in netrc, which Hub clients use."""
    with suppress(OSError, netrc.NetrcParseError, ValueError, RuntimeError):
        path = Path(file).expanduser()
        if path.is_file():
            hosts = netrc.netrc(str(path)).hosts.values()
            return tuple(password for _, _, password in hosts if password)
    return ()


@lru_cache(maxsize=8)
def _build_forms(secrets: frozenset[str]) -> SecretForms:
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
        # Short forms match only whole words.
        if len(form) < MIN_FRAGMENT:
            pattern = rf"{WORD_START}{pattern}(?![A-Za-z0-9])"
        patterns.append(re.compile(pattern, re.IGNORECASE))
    return SecretForms(roots, patterns)


def _list_forms(secret: str) -> Iterator[str]:
    """Yield the forms in which clients, servers and logs may repeat a secret."""
    for plain in {secret, unquote(secret), unquote_plus(secret)}:
        yield plain
        yield from (text[1:-1] for text in (repr(plain), json.dumps(plain), ascii(plain)))
        yield from (escape(plain), quote(plain), quote(plain, safe=""), quote_plus(plain))
        raw = plain.encode("utf-8", "surrogateescape")
        # The secret may be the user or the password of HTTP basic authentication.
        for content in (raw, raw + b":", b":" + raw):
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                base64_text = encode(content).decode()
                yield from (base64_text, base64_text.rstrip("="))
        yield raw.hex()
