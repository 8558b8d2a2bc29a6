"""Rotations preserve units and evidence spans, and start at the specified borders."""

from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.text.rotations import (
    choose_excerpt,
    count_units,
    find_units,
    hash_text,
    rotate_text,
)
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer

SENTENCES = [f"Sentence number {number} tells of lamp {number * 7}." for number in range(9)]
WORDS = st.text("abcdefgh", min_size=1, max_size=8)
TEXTS = st.lists(
    st.lists(WORDS, min_size=2, max_size=9).map(lambda words: " ".join(words).capitalize() + "."),
    min_size=1,
)


def first_sentence(version):
    return version.text.split(".")[0]


@given(TEXTS, st.sampled_from([" ", "\n", "\n\n", "  "]), st.data())
def test_versions_contain_all_words_and_evidence(sentences, separator, data):
    text = separator.join(sentences)
    start = data.draw(st.integers(0, len(text) - 1))
    span = Span(start, data.draw(st.integers(start + 1, len(text))))
    units = find_units(text, "en", [span])
    assert "".join(unit.slice(text) for unit in units) == text
    versions = rotate_text(text, units)
    assert versions[0].text == text
    for version in versions:
        assert sorted(version.text.split()) == sorted(text.split())
        assert version.move(span).slice(version.text) == span.slice(text)


def test_versions_start_at_the_borders_nearest_to_the_thirds():
    text = " ".join(SENTENCES)
    versions = rotate_text(text, find_units(text, "en", []))
    assert [version.number for version in versions] == [0, 1, 2]
    assert [first_sentence(version) for version in versions] == [
        sentence.rstrip(".") for sentence in SENTENCES[::3]
    ]
    # A space follows the former last unit, and trailing white space is removed.
    assert versions[1].text == " ".join(SENTENCES[3:] + SENTENCES[:3])


def test_texts_of_one_or_two_units_have_fewer_versions():
    two_sentences = " ".join(SENTENCES[:2])
    assert len(rotate_text(two_sentences, find_units(two_sentences, "en", []))) == 2
    assert len(rotate_text(SENTENCES[0], find_units(SENTENCES[0], "en", []))) == 1


def test_borders_never_split_evidence():
    text = " ".join(SENTENCES)
    evidence = Span(text.index("lamp 7"), text.index("lamp 28"))
    borders = [unit.start for unit in find_units(text, "en", [evidence])]
    assert not any(evidence.start < border < evidence.end for border in borders)
    assert len(borders) < len(SENTENCES)


def test_headings_belong_to_the_next_unit():
    text = (
        f"{SENTENCES[0]}\n\n# The lamps\n\n{SENTENCES[1]}\n\nOf the harbour\n{SENTENCES[2]}\nIt "
        f"is late. {SENTENCES[3]}"
    )
    units = [unit.slice(text).strip() for unit in find_units(text, "en", [])]
    assert units[1] == f"# The lamps\n\n{SENTENCES[1]}"
    assert units[2] == f"Of the harbour\n{SENTENCES[2]}"
    assert "It is late." in units


def test_seams_match_the_separators_of_the_text():
    text = "\n".join(SENTENCES)
    assert rotate_text(text, find_units(text, "en", []))[1].text == "\n".join(
        SENTENCES[3:] + SENTENCES[:3]
    )
    chinese = "灯塔在港口。船在海上。钟在塔里。风从东边来。雨下了三天。人们在等待。"
    versions = rotate_text(chinese, find_units(chinese, "zh", []))
    assert len(versions) == 3
    assert all(sorted(version.text) == sorted(chinese) for version in versions)


def test_excerpts_fit_and_contain_the_most_evidence():
    text = " ".join(SENTENCES)
    units = find_units(text, "en", [])
    sizes = count_units(text, units, EstimatedTokenizer())
    evidence = [
        Span(text.index(f"lamp {7 * number}."), text.index(f"lamp {7 * number}.") + 6)
        for number in (4, 5, 6)
    ]
    max_tokens = sum(sizes[3:6])
    part = choose_excerpt(text, units, sizes, max_tokens, evidence)
    assert part is not None
    inside = [unit for unit in units if part.start <= unit.start < part.end]
    assert (
        sum(size for unit, size in zip(units, sizes, strict=True) if unit in inside) <= max_tokens
    )
    assert sum(part.start <= span.start and span.end <= part.end for span in evidence) == 3
    versions = rotate_text(text, units, part)
    assert versions[0].text == part.slice(text).rstrip()
    for version in versions:
        assert version.move(evidence[1]).slice(version.text) == evidence[1].slice(text)


def test_there_is_no_excerpt_if_no_unit_fits():
    text = " ".join(SENTENCES)
    units = find_units(text, "en", [])
    assert choose_excerpt(text, units, [10] * len(units), 9, []) is None


def test_a_hash_of_the_text_selects_among_equal_excerpts():
    text = " ".join(SENTENCES)
    units = find_units(text, "en", [])
    part = choose_excerpt(text, units, [1] * len(units), 3, [])
    runs = [
        Span(unit.start, units[min(index + 2, len(units) - 1)].end)
        for index, unit in enumerate(units)
    ]
    assert part == runs[hash_text(text) % len(runs)]
