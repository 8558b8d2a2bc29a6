"""Wording of messages, and output in encodings without all characters."""

import os
import sys

import pytest

from posir_tasks.base.wording import (
    ERROR_HANDLER,
    SUBSTITUTES,
    drop_organization,
    drop_organizations,
    escape_controls,
    make_output_encodable,
    sanitize,
    shorten_names,
)


def test_controls_are_escaped_and_other_text_is_not():
    text = "org/\x1b[31mred\u202edlo\x9b\u2028\ud800 نمی\u200cخواهم 👩\u200d🚀 a\u3000b\tc\nd"
    escaped = escape_controls(text)
    assert (
        escaped
        == r"org/\x1b[31mred\u202edlo\x9b\u2028\ud800" + " نمی\u200cخواهم 👩\u200d🚀 a\u3000b\tc\nd"
    )
    assert sanitize(text, None) == escaped.replace("\t", r"\t").replace("\n", r"\n")
    assert sanitize(text, 20) == sanitize(text, None)[:17] + "..."


def test_substitutes_keep_the_width_and_names_are_escaped():
    make_output_encodable()
    assert all(len(text) == 1 and text.isascii() for text in SUBSTITUTES.values())
    assert "✓ 1–2 █▎ Café 表".encode("ascii", ERROR_HANDLER) == rb"+ 1-2 #: Caf\xe9 \u8868"
    assert "✓ – Café".encode("cp1252", ERROR_HANDLER) == "+ – Café".encode("cp1252")
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("utf-8", ERROR_HANDLER)


def test_closed_streams_become_the_null_device(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    make_output_encodable()
    print("unseen")
    assert all(stream.name == os.devnull for stream in (sys.stdout, sys.stderr))


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("org/a+chunks(128,64,max,tokens)", "a+chunks(128)"),
        ("org/a+chunks(127,63,max,tokens)", "a+chunks(127)"),
        ("org/a+chunks(128,128,max,tokens)", "a+chunks(128,128,max,tokens)"),
        ("org/a+chunks(128,64,mean,tokens)", "a+chunks(128,64,mean,tokens)"),
        ("org/a+late_chunks(64,32,tokens)", "a+late_chunks(64,32,tokens)"),
    ],
)
def test_short_names_omit_default_chunk_arguments(name, short):
    assert drop_organizations([name, "other"]) == [short, "other"]
    assert shorten_names([name, "other"], 28) == [short, "other"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("org/a", "a"),
        ("a", "a"),
        ("hybrid(org/a,b)", "hybrid(a,b)"),
        ("hybrid(b,org/a)", "hybrid(b,a)"),
        ("hybrid(x/a,hybrid(y/b+chunks(64,32),z/c))", "hybrid(a,hybrid(b+chunks(64,32),c))"),
        ("org/a+chunks(64,32)", "a+chunks(64,32)"),
        ("org/a+rerank(org/b)", "a+rerank(b)"),
        ("endpoint/bge-m3 (localhost-8000)", "bge-m3 (localhost-8000)"),
        ("org/a (results/old/0)", "a (results/old/0)"),
        ("org/a @ 0123", "a @ 0123"),
    ],
)
def test_organizations_are_removed_also_in_parentheses(name, short):
    assert drop_organization(name) == short
    assert drop_organizations([name, "other"]) == [short, "other"]
