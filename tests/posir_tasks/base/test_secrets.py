"""Secrets are redacted in all forms and outputs: messages, exceptions and their causes, logs,
tables, JSON and pages.
"""

import base64
import json
import logging
import traceback
from html import escape
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.base import secrets
from posir_tasks.base.errors import PosirError, sanitize_chain
from posir_tasks.base.logs import SafeFormatter
from posir_tasks.base.public import public
from posir_tasks.base.secrets import HIDDEN, add_address, collect_secrets, redact
from posir_tasks.base.wording import escape_controls, sanitize
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Column, DisplaySection, Table

KEY = "Zk7/secret+Key=42"


@pytest.fixture(autouse=True)
def no_other_secrets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(secrets, "_added", set())
    yield
    monkeypatch.undo()
    collect_secrets()


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SOME_API_KEY", KEY)
    collect_secrets()
    return KEY


def list_forms(secret: str) -> list[str]:
    raw = secret.encode()
    encoded = [base64.b64encode(part).decode() for part in (raw, raw + b":", b":" + raw)]
    return [
        *(
            secret,
            secret.upper(),
            secret.lower(),
            f"x{secret}y",
            f"\0{secret}",
            f"\\x00{secret}",
            f"\\u0000{secret}",
        ),
        *(
            quote(secret),
            quote(secret, safe=""),
            quote(secret, safe="").lower(),
            quote_plus(secret),
        ),
        *(
            json.dumps({secret: secret}),
            repr(secret),
            escape(secret),
            *encoded,
            encoded[0].rstrip("="),
            raw.hex(),
        ),
    ]


@pytest.mark.parametrize("form", list_forms(KEY))
def test_a_key_is_hidden_in_every_form(key, form):
    shown = sanitize(f"before {form} after", None)
    assert HIDDEN in shown
    assert (shown.startswith("before "), shown.endswith(" after")) == (True, True)
    decoded = [shown.lower(), shown.lower().replace("%2f", "/").replace("%2b", "+")]
    assert not any(key.lower() in text for text in decoded)


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=8)
    .map(str.strip)
    .filter(lambda x: len(x) > 7)
)
def test_any_long_secret_is_hidden(secret):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "_added", {secret})
        collect_secrets()
        for form in (
            secret,
            quote(secret, safe=""),
            base64.b64encode(secret.encode()).decode(),
            json.dumps(secret)[1:-1],
        ):
            assert redact(f"<{form}>") == f"<{HIDDEN}>"


@pytest.mark.parametrize("name", ["https_proxy", "HTTP_PROXY", "all_proxy", "WSS_PROXY"])
@pytest.mark.parametrize(
    ("user", "parts"),
    [
        ("me:hunter22", ["hunter22"]),
        ("me%40corp:p%40ss%3Aw0rd", ["p%40ss%3Aw0rd", "p@ss:w0rd"]),
        ("me:a/b#c@d", ["a/b#c@d"]),
        ("tokenAsUser123", ["tokenAsUser123"]),
        (":pass", ["pass"]),
    ],
)
@pytest.mark.parametrize("scheme", ["http://", "socks5://", ""])
def test_the_password_of_a_proxy_is_hidden(monkeypatch, name, user, parts, scheme):
    monkeypatch.setenv(name, f"{scheme}{user}@proxy.corp:3128")
    collect_secrets()
    basic = base64.b64encode(user.replace("%40", "@").replace("%3A", ":").encode()).decode()
    for text in (
        *parts,
        user,
        f"{scheme}{user}@proxy.corp:3128",
        f"Proxy-Authorization: Basic {basic}",
        basic,
    ):
        shown = redact(f"407, url='{text}'")
        assert HIDDEN in shown
        assert not any(part in shown for part in (*parts, basic))


def test_added_addresses_and_netrc_contain_secrets(monkeypatch, tmp_path):
    add_address("http://me:correct-horse@proxy:1")
    (tmp_path / "netrc").write_text("machine hub.example login me password battery-staple\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    collect_secrets()
    assert redact("correct-horse, battery-staple") == f"{HIDDEN}, {HIDDEN}"
    (tmp_path / "broken").write_text("machine")
    monkeypatch.setenv("NETRC", str(tmp_path / "broken"))
    collect_secrets()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://a:b@host/c", "https://***@host/c"),
        ("https://user@host/c and http://x:y@z", "https://***@host/c and http://***@z"),
        ("Authorization: Bearer abcdefgh12345678", "Authorization: ***"),
        ('{"Authorization": "Basic dXNlcjpwYXNz"}', '{"Authorization": "***"}'),
        ("sent bearer abcdefgh12345678.", "sent bearer ***"),
        ("/v1?api_key=abc123&x=1&access_token=y#z", "/v1?api_key=***&x=1&access_token=***#z"),
        ("hf_abcdefghijklmnopqrst", "***"),
        ("sk-proj-abcdefghijklmnop1234", "***"),
    ],
)
def test_uncollected_secrets_are_recognized_by_form(text, shown):
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "bge-m3@http://localhost:8000/v1",
        "https://medium.com/@user/post",
        "the bearer of bad news",
        "basic understanding of authorization",
        "sk-learn-is-a-library-for-python",
        "scikit-learn, task-specific",
        "none of the tests has a token",
    ],
)
def test_other_texts_are_unchanged(monkeypatch, text):
    for name, value in {
        "A_KEY": "none",
        "B_TOKEN": "test",
        "C_KEY": "abc",
        "PATH_KEY": "1",
    }.items():
        monkeypatch.setenv(name, value)
    collect_secrets()
    assert escape_controls(text) == text


def test_shortening_leaves_no_part_of_a_key(key):
    for start in range(60, 90):
        shown = sanitize("x" * start + key)
        assert not any(key[:length] in shown for length in range(3, len(key)))


def test_exceptions_and_causes_contain_no_secret(key):
    hostile = f"{key}\x1b[31m\u202e"

    def fail() -> None:
        try:
            try:
                raise OSError(2, f"no {hostile}", f"/tmp/{hostile}")
            except OSError as first:
                second = ValueError(hostile, {"a": 1})
                second.add_note(hostile)
                raise second from first
        except ValueError as error:
            raise PosirError(f"bad {hostile}") from error

    with pytest.raises(PosirError) as raised:
        fail()
    printed = "".join(traceback.format_exception(raised.value))
    printed = "\n".join(line for line in printed.splitlines() if "hostile" not in line)
    assert "ValueError" in printed
    assert not [
        part
        for part in (key, "\x1b", "\u202e")
        if part in f"{printed}{raised.value}{raised.value!r}"
    ]


def test_a_cause_that_cannot_be_changed_is_removed(key):
    class FixedError(Exception):
        def __str__(self) -> str:
            return key

    @public()
    def answer() -> Result:
        """Raise."""
        try:
            raise FixedError
        except FixedError as error:
            raise PosirError("wrong") from error

    with pytest.raises(PosirError) as raised:
        answer()
    assert key not in "".join(traceback.format_exception(raised.value))
    loop = ValueError("a")
    loop.__cause__ = TypeError("b")
    loop.__cause__.__context__ = loop
    sanitize_chain(loop)


def test_logs_contain_no_secret_with_any_handler(key, caplog):
    logger = logging.getLogger("posir_tasks.anything")
    with caplog.at_level(logging.DEBUG):
        logger.debug("read %s of %s", f"{key}\x1b[31m", 100)
        logger.warning("100% of nothing")
    assert caplog.messages == [f"read {HIDDEN}\\x1b[31m of 100", "100% of nothing"]
    record = logging.LogRecord("other", logging.ERROR, "", 1, "failed: %s", (f"{key}\x07",), None)
    try:
        raise ValueError(key)
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    assert key not in SafeFormatter(logging.Formatter("%(message)s")).format(record)


def test_results_contain_no_secret_in_any_format(key):
    table = Table((Column("Model"),), ((f"org/{key}",),), title=key, notes=(key,))
    result = Result(
        title=key, tables=(table,), rows=[{"model": key}], sentences=(key,), notes=(key,)
    )
    shown = (
        result.to_json(),
        result.to_markdown(),
        result.to_latex(),
        result.to_html(),
        str(result),
        repr(result),
    )
    assert [text for text in shown if key in text] == []
    titles = (*shown, DisplaySection(title=key).to_markdown())
    # Markdown escapes asterisks.
    assert all(HIDDEN in text.replace("\\*", "*") for text in titles)
