"""HTML pages are read to the end, or rejected."""

from contextlib import suppress
from pathlib import Path

import inscriptis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_data.texts import read_texts
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.data.formats.pages import decode_page, extract_text
from posir_tasks.data.formats.passages import Passage, SkippedItem
from posir_tasks.datasets.opening import open_data

PAGE_START = "<html><body><p>First.</p>"
COMPLETE = {
    "open elements": PAGE_START
    + "".join(f"<font size={number}>i{number} " for number in range(1500))
    + "LAST",
    "nested elements": PAGE_START + "<div>" * 1200 + "LAST" + "</div>" * 1200 + "</body></html>",
    "nested lists": PAGE_START + "<ul><li>" * 300 + "LAST",
    "nested tables": PAGE_START + "<table><tr><td>" * 60 + "LAST",
    "long attribute": PAGE_START + f'<img src="data:{"A" * 10_500_000}"><p>LAST',
    "after the end": PAGE_START + "</body></html><p>LAST</p>",
    "after the end of the body": PAGE_START + "</body>LAST</html>",
    "two pages": PAGE_START
    + "</body></html>\n<html><head><title>t</title></head><body><p>LAST</p></body></html>",
    "plaintext": PAGE_START + "<plaintext>LAST</p><b>",
    "closed comment": PAGE_START + "<!-- a > b --><p>LAST</p><!-- c -->",
    "zero byte": PAGE_START + "<p>a\0b LAST</p>",
    "instruction": PAGE_START + "<?php echo 1; ?>LAST",
    "open table": PAGE_START + "<table><tr><td>a</td><td>LAST",
    "frames": "<html><frameset><frame src=a></frameset><noframes>LAST</noframes></html>",
    "no tags": "LAST",
    "angle": PAGE_START + "1 < 2 LAST",
    "xhtml script": f'<?xml version="1.0"?>{PAGE_START}<script src="a"/><p>LAST</p></body></html>',
    "xhtml title": "<?xml "
    'version="1.0"?><html><head><title/></head><body><p>LAST</p></body></html>',
    "xhtml text": f'<?xml version="1.0"?>{PAGE_START}<p><![CDATA[a]]> <![CDATA[1 < 2 > 0 '
    "LAST]]></p></body></html>",
}
INCOMPLETE = {
    "comment alone": "<!-- a <p>LAST</p>",
    "tag alone": "<script src=LAST",
    "open comment": PAGE_START + "<!-- a <p>LAST</p>",
    "open script": PAGE_START + "<script>a <p>LAST</p>",
    "open style": PAGE_START + "<style>a <p>LAST</p>",
    "open title": "<html><head><title>a <body><p>LAST</p>",
    "open quotation": PAGE_START + '<a href="b>LAST</a>',
    "open tag": PAGE_START + "<p>LAST</p><img alt=a",
    "open instruction": PAGE_START + "<?php LAST",
    "hidden": PAGE_START + '<div style="display:none">LAST',
    "too many open elements": PAGE_START + "<div>" * 3000 + "LAST",
}


@pytest.mark.parametrize("case", COMPLETE)
def test_the_end_of_a_page_is_extracted(case):
    text = extract_text(COMPLETE[case])
    assert "LAST" in text
    assert "\ue000" not in text
    assert "end of the page" not in text


@pytest.mark.parametrize("case", INCOMPLETE)
def test_pages_with_a_lost_end_are_rejected(case, tmp_path: Path):
    with pytest.raises(DataError):
        extract_text(INCOMPLETE[case])
    (tmp_path / "a.html").write_text(INCOMPLETE[case])
    (item,) = open_data(tmp_path / "a.html").read_texts()
    assert isinstance(item, SkippedItem)
    assert (item.name, item.reason, bool(item.detail)) == ("a.html", "unreadable as HTML", True)
    with pytest.raises(PosirError, match=r"a\.html"):
        read_texts(tmp_path / "a.html")


def test_many_open_sections_are_parsed_in_time():
    page = '<?xml version="1.0"?>' + "<![CDATA[" * 200_000 + "<script " * 200_000
    with suppress(DataError):
        extract_text(page)


def test_cdata_in_xhtml_is_text():
    assert extract_text(COMPLETE["xhtml text"]).endswith("1 < 2 > 0 LAST")


TAGS = st.sampled_from(
    ["p", "div", "b", "span", "ul", "li", "h1", "pre", "q", "table", "tr", "td", "blockquote"]
)
NODES = st.recursive(
    st.text("ab .", min_size=1, max_size=8),
    lambda nodes: st.builds(
        lambda tag, children: f"<{tag}>{''.join(children)}</{tag}>",
        TAGS,
        st.lists(nodes, max_size=4),
    ),
    max_leaves=12,
)


@given(st.lists(NODES, max_size=5))
def test_pages_within_the_limits_match_inscriptis(nodes):
    page = f"<html><body>{''.join(nodes)}</body></html>"
    expected = "\n".join(line.strip() for line in inscriptis.get_text(page).splitlines())
    assert extract_text(page) == expected.rstrip()


WORDS = "Über die Brücke, 東京の鐘"


@pytest.mark.parametrize(
    ("encoding", "head", "words"),
    [
        ("utf-8", "", WORDS),
        ("utf-8", "<meta charset=iso-8859-1>", WORDS),
        ("utf-16", "", WORDS),
        ("iso-8859-1", '<?xml version="1.0" encoding="ISO-8859-1"?>', WORDS[:15]),
        ("cp1252", "<meta charset='iso-8859-1'>", "Brücke – Übergang"),
        (
            "shift_jis",
            '<meta http-equiv="Content-Type" content="text/html; charset=Shift_JIS">',
            WORDS[-4:],
        ),
        ("iso-2022-jp", '<meta charset="iso-2022-jp">', WORDS[-4:]),
        ("gb18030", "<meta charset=gb2312>", WORDS[-4:]),
    ],
)
def test_the_declared_encoding_is_used(encoding, head, words, tmp_path: Path):
    (tmp_path / "a.html").write_bytes(f"{head}<p>{words}</p>".encode(encoding))
    (item,) = open_data(tmp_path / "a.html").read_texts()
    assert isinstance(item, Passage)
    assert item.text == words


@pytest.mark.parametrize(
    "head", ["", "<meta charset=none>", "<meta charset=unicode_escape>", "<meta charset=utf-8>"]
)
def test_pages_in_undeclared_encodings_are_rejected(head):
    with pytest.raises(UnicodeDecodeError):
        decode_page(f"{head}<p>Brücke</p>".encode("iso-8859-1"))
