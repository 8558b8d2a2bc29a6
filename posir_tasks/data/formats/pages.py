"""The text of HTML pages, to their end.

libxml2 stops at its limits (255 open elements, an attribute of 10 MB) without an error, and
inscriptis calls itself for each open element. Here the limits are libxml2's largest (2,047
elements), the walk needs no stack, and a mark that is put after the page shows whether the text has
its end.
"""

from __future__ import annotations

import codecs
import html
import re

from inscriptis.html_engine import Inscriptis
from inscriptis.model.canvas import Canvas
from inscriptis.model.html_document_state import HtmlDocumentState
from lxml import etree
from lxml.html import HtmlElement, HTMLParser, document_fromstring

from posir_tasks.base.errors import DataError
from posir_tasks.base.untrusted import decode

#: Bytes in which a page states its encoding.
HEAD_BYTES = 4096
ENCODING = re.compile(
    rb"""(?:<\?xml\b[^>]*?\sencoding|<meta\b[^>]*?[\s"';]charset)\s*=\s*["']?\s*([\w:.-]+)""",
    re.IGNORECASE,
)
#: Encodings of pages, by Python's names, and those that browsers read in place of a smaller one.
ENCODINGS = re.compile(
    r"ascii|iso8859-\d+|cp\d+|koi8-\w|gb\w+|hz|big5\w*|euc_\w+|shift_jis\w*|iso2022_\w+|tis-620|mac-\w+"
)
LARGER = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
#: Encodings whose bytes are UTF-8, too, with another meaning.
SEVEN_BITS = ("iso2022_", "hz")
#: The end of a page, and what is put after it.
LAST_TAGS = re.compile(r"</(?:body|html)\s*>", re.IGNORECASE)
END = "\ue000 end of the page \ue000"
#: XML that HTML reads otherwise: the first is a comment in HTML, the second an element that is left
#: open.
CDATA = "<![CDATA["
CDATA_END = "]]>"
EMPTY = re.compile(r"<(script|style|title|textarea|iframe|noframes|xmp)\b([^<>]*)/>", re.IGNORECASE)
LIMIT = "RESOURCE_LIMIT"


def decode_page(content: bytes) -> str:
    """Return a page as text: in UTF-8, in UTF-16 with a byte-order mark, or else in the encoding
    that it states.

    Raises:
        UnicodeDecodeError: It is in none of these.
    """
    encoding = _find_encoding(content)
    if encoding is not None and encoding.startswith(SEVEN_BITS):
        return content.decode(encoding)
    try:
        return decode(content)
    except UnicodeDecodeError:
        if encoding is None:
            raise
    return content.decode(encoding)


def _find_encoding(content: bytes) -> str | None:
    """Return Python's name of the encoding that a page states; None without one that pages have."""
    match = ENCODING.search(content[:HEAD_BYTES])
    try:
        name = codecs.lookup(match[1].decode("ascii")).name if match else ""
    except LookupError:
        return None
    return LARGER.get(name, name) if ENCODINGS.fullmatch(name) else None


def extract_text(page: str) -> str:
    """Return the text of a page, blocks on lines of their own, without scripts and what is hidden.

    Raises:
        DataError: Its end is not in the text: it is beyond a limit of the parser, or in a comment,
            a tag or an element that is left open or hidden.
    """
    parser = HTMLParser(encoding="utf-8", huge_tree=True)
    # What follows these tags is part of the body for browsers, but of no element of the tree.
    body = LAST_TAGS.sub("", _read_as_html(page))
    try:
        text = _Walk(document_fromstring(f"{body}{END}".encode(), parser=parser)).get_text()
    except etree.LxmlError:
        # There is no element at all, since a comment or a tag has everything.
        text = ""
    if END not in text:
        if any(LIMIT in entry.type_name for entry in parser.error_log):
            raise DataError(
                "has more nested elements, or longer ones, than can be read; convert it to text"
            )
        raise DataError(
            "its end is in a comment, a tag or an element such as <script> that is left open or "
            "hidden; close it, or convert the page to text"
        )
    lines = text.replace(END, "").splitlines()
    return "\n".join(line.strip() for line in lines).rstrip()


def _read_as_html(page: str) -> str:
    """Return a page without its XML declaration, and XHTML as HTML would have it."""
    page = page.lstrip("\ufeff \t\r\n")
    if not page.startswith("<?xml"):
        return page
    page = page.partition("?>")[2]
    first, *sections = page.split(CDATA)
    return EMPTY.sub(r"<\1\2></\1>", first + "".join(map(_escape_section, sections)))


def _escape_section(section: str) -> str:
    """Return what follows the begin of a CDATA section with its text as HTML has it; without an
    end, as a comment.
    """
    text, end, rest = section.partition(CDATA_END)
    return html.escape(text) + rest if end else CDATA + section


class _Walk(Inscriptis):  # type: ignore[misc]
    """The conversion of inscriptis, in a loop, so that open elements need no stack."""

    def _parse_html_tree(self, state: HtmlDocumentState, tree: HtmlElement) -> Canvas:
        for event, node in etree.iterwalk(tree, events=("start", "end", "comment", "pi")):
            if event == "start":
                state.apply_starttag_layout(node.tag, node.attrib)
                if (begin := self.start_tag_handler_dict.get(node.tag)) is not None:
                    begin(state, node.attrib)
                opened = state.tags[-1]
                opened.canvas.open_tag(opened)
                opened.write(node.text)
            elif event == "end":
                if (end := self.end_tag_handler_dict.get(node.tag)) is not None:
                    end(state)
                closed = state.tags.pop()
                closed.canvas.close_tag(closed)
                state.tags[-1].write(node.tail)
            elif node.tail:
                state.tags[-1].write(node.tail)
        return state.canvas
