"""Wording of messages, and output in an encoding that lacks a character."""

import os
import sys

import pytest

from posir_tasks.base.wording import (
    HANDLER,
    SUBSTITUTES,
    escape_controls,
    make_output_encodable,
    sanitized,
)


def test_controls_are_escaped_and_text_in_any_script_is_not():
    text = "org/\x1b[31mred\u202edlo\x9b\u2028\ud800 نمی\u200cخواهم 👩\u200d🚀 a\u3000b\tc\nd"
    escaped = escape_controls(text)
    assert (
        escaped
        == r"org/\x1b[31mred\u202edlo\x9b\u2028\ud800" + " نمی\u200cخواهم 👩\u200d🚀 a\u3000b\tc\nd"
    )
    assert sanitized(text, None) == escaped.replace("\t", r"\t").replace("\n", r"\n")
    assert sanitized(text, 20) == sanitized(text, None)[:17] + "..."


def test_substitutes_keep_the_width_and_names_are_escaped():
    make_output_encodable()
    assert all(len(text) == 1 and text.isascii() for text in SUBSTITUTES.values())
    assert "✓ 1–2 █▎ Café 表".encode("ascii", HANDLER) == rb"+ 1-2 #: Caf\xe9 \u8868"
    assert "✓ – Café".encode("cp1252", HANDLER) == "+ – Café".encode("cp1252")
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("utf-8", HANDLER)


def test_closed_streams_become_the_null_device(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    make_output_encodable()
    print("unseen")
    assert all(stream.name == os.devnull for stream in (sys.stdout, sys.stderr))
