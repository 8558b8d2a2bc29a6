"""Output in an encoding that lacks a character."""

import os
import sys

import pytest

from posir_tasks.display.wording import HANDLER, SUBSTITUTES, make_output_encodable


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
