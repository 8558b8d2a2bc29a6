"""Extract the complete text of HTML pages.

By default, libxml2 stops silently at its limits (255 open elements, attributes of 10 MB), and
inscriptis recurses into each element. This module raises libxml2's limits to the maximum (2,047
elements), replaces the recursion with a loop, and checks that a marker at the end of the page
reaches the extracted text.
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

#: Number of bytes to search for an encoding declaration.
HEAD_BYTES = 4096
ENCODING = re.compile(
    rb"""(?:<\?xml\b[^>]*?\sencoding|<meta\b[^>]*?[\s"';]charset)\s*=\s*["']?\s*([\w:.-]+)""",
    re.IGNORECASE,
)
#: Python names of web encodings, and the supersets that browsers substitute.
ENCODINGS = re.compile(
    r"ascii|iso8859-\d+|cp\d+|koi8-\w|gb\w+|hz|big5\w*|euc_\w+|shift_jis\w*|iso2022_\w+|tis-620|mac-\w+"
)
SUPERSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
#: Encodings whose bytes are valid UTF-8 as well.
SEVEN_BITS = ("iso2022_", "hz")
#: End tags of a page, and the marker that is appended to the page.
LAST_TAGS = re.compile(r"</(?:body|html)\s*>", re.IGNORECASE)
END_MARKER = "\ue000 end of the page \ue000"
#: XML syntax with a different meaning in HTML: a CDATA section is a comment, and an empty element
#: stays open.
CDATA = "<![CDATA["
CDATA_END = "]]>"
EMPTY_ELEMENT = re.compile(
    r"<(script|style|title|textarea|iframe|noframes|xmp)\b([^<>]*)/>", re.IGNORECASE
)
LIMIT_ERROR = "RESOURCE_LIMIT"


def decode_page(content: bytes) -> str:
    """Decode a page as UTF-8, as UTF-16 with a byte-order mark, or else with its declared encoding.

    Raises:
        UnicodeDecodeError: The page is invalid in all of these encodings.
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
    """Return Python's name of the declared encoding, or None if it is missing or unknown."""
    match = ENCODING.search(content[:HEAD_BYTES])
    try:
        name = codecs.lookup(match[1].decode("ascii")).name if match else ""
    except LookupError:
        return None
    return SUPERSETS.get(name, name) if ENCODINGS.fullmatch(name) else None


def extract_text(page: str) -> str:
    """Extract the visible text of a page, with a line break between blocks.

    Raises:
        DataError: The end of the page is lost, since the page exceeds a parser limit or ends in a
            comment, a tag, or an open or hidden element.
    """
    parser = HTMLParser(encoding="utf-8", huge_tree=True)
    # Browsers move text after these tags into the body; the parser drops it.
    body = LAST_TAGS.sub("", _convert_xhtml(page))
    try:
        text = _IterativeInscriptis(
            document_fromstring(f"{body}{END_MARKER}".encode(), parser=parser)
        ).get_text()
    except etree.LxmlError:
        # The page consists of a comment or a tag.
        text = ""
    if END_MARKER not in text:
        if any(LIMIT_ERROR in entry.type_name for entry in parser.error_log):
            raise DataError(
                "its elements are nested too deeply or too long to be read; convert it to text"
            )
        raise DataError(
            "its end is in a comment, a tag or an element such as <script> that is left open or "
            "hidden; close it, or convert the page to text"
        )
    lines = text.replace(END_MARKER, "").splitlines()
    return "\n".join(line.strip() for line in lines).rstrip()


def _convert_xhtml(page: str) -> str:
    """Convert XHTML to HTML. Other pages are returned unchanged."""
    page = page.lstrip("\ufeff \t\r\n")
    if not page.startswith("<?xml"):
        return page
    page = page.partition("?>")[2]
    first, *sections = page.split(CDATA)
    return EMPTY_ELEMENT.sub(r"<\1\2></\1>", first + "".join(map(_escape_section, sections)))


def _escape_section(section: str) -> str:
    """Escape the text of a CDATA section. Unclosed sections are left unchanged."""
    text, end, remainder = section.partition(CDATA_END)
    return html.escape(text) + remainder if end else CDATA + section


class _IterativeInscriptis(Inscriptis):  # type: ignore[misc]
    """inscriptis without recursion, so that deep nesting cannot overflow the stack."""

    def _parse_html_tree(self, state: HtmlDocumentState, tree: HtmlElement) -> Canvas:
        for event, node in etree.iterwalk(tree, events=("start", "end", "comment", "pi")):
            if event == "start":
                state.apply_starttag_layout(node.tag, node.attrib)
                if (begin := self.start_tag_handler_dict.get(node.tag)) is not None:
                    begin(state, node.attrib)
                element = state.tags[-1]
                element.canvas.open_tag(element)
                element.write(node.text)
            elif event == "end":
                if (end := self.end_tag_handler_dict.get(node.tag)) is not None:
                    end(state)
                element = state.tags.pop()
                element.canvas.close_tag(element)
                state.tags[-1].write(node.tail)
            elif node.tail:
                state.tags[-1].write(node.tail)
        return state.canvas
