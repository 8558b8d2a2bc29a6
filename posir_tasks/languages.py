"""The languages of PosIR. A new language is one row of `LANGUAGES` plus data in the documented layout."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from posir_tasks.errors import PosirError

#: Names are part of task names, `PosIR-<name>` and `PosIR-<name>-English`.
NAME = re.compile(r"[A-Z][A-Za-z]+")
CODE = re.compile(r"[a-z]{3}-[A-Z][a-z]{3}")


@dataclass(frozen=True)
class Language:
    """A language of the data.

    Raises:
        PosirError: Name or code are missing or malformed.
    """

    name: str = ""
    """English name, as in `PosIR-<name>`: letters only, beginning with a capital."""
    code: str = ""
    """Code as in the folders of the data: ISO 639-3 and ISO 15924, such as `eng-Latn`."""
    in_paper: bool = False
    """Whether it is in the main table of the paper, with ten languages, and thus in the benchmark `PosIR`."""
    cross_lingual_in_paper: bool = False
    """Whether the paper reports it with the English corpus; it is then in the benchmark `PosIR(cross-lingual)`."""

    def __post_init__(self) -> None:
        for field, pattern, expected in (
            ("name", NAME, "an English name of letters A to Z that begins with a capital, such as Finnish"),
            ("code", CODE, "an ISO 639-3 code, a hyphen and an ISO 15924 code, such as fin-Latn"),
        ):
            value = getattr(self, field)
            if not (isinstance(value, str) and pattern.fullmatch(value)):
                problem = f"{value!r} is not {expected}" if value else f"is missing; expected {expected}"
                raise row_error(self, f"{field} {problem}")


def row_error(language: Language, problem: str) -> PosirError:
    """Return the error for an invalid row of the table."""
    return PosirError(
        f"posir_tasks/languages.py: Language({language.name!r}, {language.code!r}): {problem}. A row of LANGUAGES is "
        'Language("Finnish", "fin-Latn").'
    )


def unique_languages(*languages: Language) -> tuple[Language, ...]:
    """Return the languages, which must be distinct.

    Raises:
        PosirError: Two have the same name or code.
    """
    known: set[str] = set()
    for language in languages:
        for field, value in (("name", language.name), ("code", language.code)):
            if value in known:
                raise row_error(language, f"the {field} {value!r} is a duplicate; remove one of the rows")
            known.add(value)
    return languages


def check_iso_codes(languages: Iterable[Language]) -> None:
    """Check codes against mteb's tables of ISO 639-3 and ISO 15924; imports mteb.

    Raises:
        PosirError: A language or script does not exist.
    """
    from mteb.languages import ISO_TO_LANGUAGE, ISO_TO_SCRIPT

    for language in languages:
        code, script = language.code.split("-")
        for part, known, standard in ((code, ISO_TO_LANGUAGE, "ISO 639-3"), (script, ISO_TO_SCRIPT, "ISO 15924")):
            if part not in known:
                raise row_error(language, f"{standard} has no code {part!r}; look it up in `mteb.languages`")


#: Names and codes are those of the folders of infgrad/PosIR-Benchmark-v1; the flags follow arXiv 2601.08363.
LANGUAGES = unique_languages(
    Language("English", "eng-Latn", in_paper=True),
    Language("Chinese", "cmn-Hans", in_paper=True),
    Language("Arabic", "ara-Arab", in_paper=True, cross_lingual_in_paper=True),
    Language("German", "deu-Latn", in_paper=True, cross_lingual_in_paper=True),
    Language("French", "fra-Latn", in_paper=True, cross_lingual_in_paper=True),
    Language("Italian", "ita-Latn", in_paper=True, cross_lingual_in_paper=True),
    Language("Korean", "kor-Kore", in_paper=True, cross_lingual_in_paper=True),
    Language("Portuguese", "por-Latn", in_paper=True, cross_lingual_in_paper=True),
    Language("Russian", "rus-Cyrl", in_paper=True, cross_lingual_in_paper=True),
    Language("Spanish", "spa-Latn", in_paper=True, cross_lingual_in_paper=True),
    Language("Hindi", "hin-Deva"),
    Language("Polish", "pol-Latn"),
    Language("Bengali", "ben-Beng"),
    Language("Japanese", "jpn-Jpan"),
)

#: Language of the corpus of the cross-lingual tasks.
PIVOT = LANGUAGES[0]

#: The 31 domains, spelled as the folders of the data. A listing of the data itself takes precedence.
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
