"""HTML pages are read to their end, or refused."""

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

BEGIN = "<html><body><p>First.</p>"
KEPT = {
    "open elements": BEGIN
    + "".join(f"<font size={number}>i{number} " for number in range(1500))
    + "LAST",
    "nested elements": BEGIN + "<div>" * 1200 + "LAST" + "</div>" * 1200 + "</body></html>",
    "nested lists": BEGIN + "<ul><li>" * 300 + "LAST",
    "nested tables": BEGIN + "<table><tr><td>" * 60 + "LAST",
    "long attribute": BEGIN + f'<img src="data:{"A" * 10_500_000}"><p>LAST',
    "after the end": BEGIN + "</body></html><p>LAST</p>",
    "after the end of the body": BEGIN + "</body>LAST</html>",
    "two pages": BEGIN
    + "</body></html>\n<html><head><title>t</title></head><body><p>LAST</p></body></html>",
    "plaintext": BEGIN + "<plaintext>LAST</p><b>",
    "closed comment": BEGIN + "<!-- a > b --><p>LAST</p><!-- c -->",
    "zero byte": BEGIN + "<p>a\0b LAST</p>",
    "instruction": BEGIN + "<?php echo 1; ?>LAST",
    "open table": BEGIN + "<table><tr><td>a</td><td>LAST",
    "frames": "<html><frameset><frame src=a></frameset><noframes>LAST</noframes></html>",
    "no tags": "LAST",
    "angle": BEGIN + "1 < 2 LAST",
    "xhtml script": f'<?xml version="1.0"?>{BEGIN}<script src="a"/><p>LAST</p></body></html>',
    "xhtml title": "<?xml "
    'version="1.0"?><html><head><title/></head><body><p>LAST</p></body></html>',
    "xhtml text": f'<?xml version="1.0"?>{BEGIN}<p><![CDATA[a]]> <![CDATA[1 < 2 > 0 '
    "LAST]]></p></body></html>",
}
REFUSED = {
    "comment alone": "<!-- a <p>LAST</p>",
    "tag alone": "<script src=LAST",
    "open comment": BEGIN + "<!-- a <p>LAST</p>",
    "open script": BEGIN + "<script>a <p>LAST</p>",
    "open style": BEGIN + "<style>a <p>LAST</p>",
    "open title": "<html><head><title>a <body><p>LAST</p>",
    "open quotation": BEGIN + '<a href="b>LAST</a>',
    "open tag": BEGIN + "<p>LAST</p><img alt=a",
    "open instruction": BEGIN + "<?php LAST",
    "hidden": BEGIN + '<div style="display:none">LAST',
    "too many open elements": BEGIN + "<div>" * 3000 + "LAST",
}


@pytest.mark.parametrize("case", KEPT)
def test_the_end_of_a_page_is_kept(case):
    text = extract_text(KEPT[case])
    assert "LAST" in text
    assert "\ue000" not in text
    assert "end of the page" not in text


@pytest.mark.parametrize("case", REFUSED)
def test_a_page_whose_end_cannot_be_read_is_refused(case, tmp_path: Path):
    with pytest.raises(DataError):
        extract_text(REFUSED[case])
    (tmp_path / "a.html").write_text(REFUSED[case])
    (item,) = open_data(tmp_path / "a.html").read_texts()
    assert isinstance(item, SkippedItem)
    assert (item.name, item.reason, bool(item.detail)) == ("a.html", "unreadable as HTML", True)
    with pytest.raises(PosirError, match=r"a\.html"):
        read_texts(tmp_path / "a.html")


def test_many_begins_of_sections_are_read_in_time():
    page = '<?xml version="1.0"?>' + "<![CDATA[" * 200_000 + "<script " * 200_000
    with suppress(DataError):
        extract_text(page)


def test_text_in_cdata_of_xhtml_is_text():
    assert extract_text(KEPT["xhtml text"]).endswith("1 < 2 > 0 LAST")


TAGS = st.sampled_from(
    ["p", "div", "b", "span", "ul", "li", "h1", "pre", "q", "table", "tr", "td", "blockquote"]
)
NODES = st.recursive(
    st.text("ab .", min_size=1, max_size=8),
    lambda nodes: st.builds(
        lambda tag, inner: f"<{tag}>{''.join(inner)}</{tag}>", TAGS, st.lists(nodes, max_size=4)
    ),
    max_leaves=12,
)


@given(st.lists(NODES, max_size=5))
def test_a_page_within_all_limits_is_read_as_inscriptis_reads_it(nodes):
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
def test_the_encoding_that_a_page_states_is_used(encoding, head, words, tmp_path: Path):
    (tmp_path / "a.html").write_bytes(f"{head}<p>{words}</p>".encode(encoding))
    (item,) = open_data(tmp_path / "a.html").read_texts()
    assert isinstance(item, Passage)
    assert item.text == words


@pytest.mark.parametrize(
    "head", ["", "<meta charset=none>", "<meta charset=unicode_escape>", "<meta charset=utf-8>"]
)
def test_a_page_in_no_encoding_that_it_states_is_refused(head):
    with pytest.raises(UnicodeDecodeError):
        decode_page(f"{head}<p>Brücke</p>".encode("iso-8859-1"))
