"""PDF files are read completely, or skipped with the reason."""

import zlib
from collections.abc import Collection
from pathlib import Path

import pytest

from posir_tasks.data.formats.passages import Passage, SkippedItem
from posir_tasks.datasets.opening import open_data

LINES = ["The bell was cast in copper.", "It rings twice at noon.", "A heron nested on the crane."]


def compress(text: str) -> bytes:
    return zlib.compress(text.encode())


def compress_damaged(text: str) -> bytes:
    """Compress the first half of a text, and append an invalid block."""
    stream = zlib.compressobj()
    half = len(text) // 2
    return stream.compress(text[:half].encode()) + stream.flush(zlib.Z_FULL_FLUSH) + b"\xff" * 40


def write_pdf(
    file: Path,
    streams: Collection[bytes],
    *,
    count: int | None = None,
    pictures: Collection[int] = (),
) -> None:
    """Write a PDF with a page per compressed content stream, some with pictures."""
    object_numbers = [10 + 2 * index for index in range(len(streams))]
    kids = " ".join(f"{number} 0 R" for number in object_numbers)
    objects = {
        1: b"<</Type/Catalog/Pages 2 0 R>>",
        2: f"<</Type/Pages/Kids[{kids}]/Count {count or len(streams)}>>".encode(),
        3: b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        4: b"<</Type/XObject/Subtype/Image/Width 1/Height 1/BitsPerComponent "
        b"8/ColorSpace/DeviceGray/Length 1>>"
        b"stream\n0\nendstream",
    }
    for index, (number, stream) in enumerate(zip(object_numbers, streams, strict=True)):
        picture = "/XObject<</I 4 0 R>>" if index in pictures else ""
        resources = f"<</Font<</F 3 0 R>>{picture}>>"
        draw_lines = (
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources{resources}/Contents "
            f"{number + 1} 0 R>>"
        )
        objects[number] = draw_lines.encode()
        objects[number + 1] = (
            f"<</Length {len(stream)}/Filter/FlateDecode>>stream\n".encode()
            + stream
            + b"\nendstream"
        )
    body = b"".join(
        b"%d 0 obj\n" % number + content + b"\nendobj\n" for number, content in objects.items()
    )
    file.write_bytes(b"%PDF-1.4\n" + body + b"trailer<</Root 1 0 R/Size 40>>\nstartxref\n0\n%%EOF")


def draw_lines(*lines: str) -> str:
    return "".join(
        f"BT /F 12 Tf 50 {700 - 20 * row} Td ({line}) Tj ET\n" for row, line in enumerate(lines)
    )


def read_items(file: Path) -> list[Passage | SkippedItem]:
    return list(open_data(file).read_texts())


def test_all_pages_are_read(tmp_path: Path):
    write_pdf(tmp_path / "a.pdf", [compress(draw_lines(line)) for line in LINES])
    (item,) = read_items(tmp_path / "a.pdf")
    assert isinstance(item, Passage)
    assert item.text.split("\n") == LINES


@pytest.mark.parametrize(
    "options",
    [
        {"streams": [compress(draw_lines(*LINES)), compress_damaged(draw_lines(*LINES) * 20)]},
        {"streams": [compress(draw_lines(*LINES))], "count": 4},
    ],
    ids=["damaged page", "missing pages"],
)
def test_partly_unreadable_files_are_skipped(tmp_path: Path, options):
    write_pdf(tmp_path / "a.pdf", **options)
    (item,) = read_items(tmp_path / "a.pdf")
    assert isinstance(item, SkippedItem)
    assert item.reason == "unreadable as PDF"


def test_scanned_pages_are_counted(tmp_path: Path):
    picture = compress("q /I Do Q")
    write_pdf(
        tmp_path / "a.pdf",
        [compress(draw_lines(*LINES)), picture, compress(""), picture],
        pictures=[1, 3],
    )
    text, skipped = read_items(tmp_path / "a.pdf")
    assert isinstance(text, Passage)
    assert isinstance(skipped, SkippedItem)
    assert (skipped.reason, skipped.number) == ("scanned PDF pages", 2)
    assert skipped.detail.startswith("pages 2, 4;")
