"""The languages of PosIR. A new language is one row of `LANGUAGES` plus data in the documented layout."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from posir_tasks.errors import PosirError

#: A name becomes a part of task names, `PosIR-<name>` and `PosIR-<name>-English`.
NAME = re.compile(r"[A-Z][A-Za-z]+")
CODE = re.compile(r"[a-z]{3}-[A-Z][a-z]{3}")


@dataclass(frozen=True)
class Language:
    """A language of the data.

    Raises:
        PosirError: Name or code are missing or not of the form wanted.
    """

    name: str = ""
    """English name, as in `PosIR-<name>`: letters alone, the first one a capital."""
    code: str = ""
    """Code as the data's folders have it: ISO 639-3 and ISO 15924, such as `eng-Latn`."""
    in_paper: bool = False
    """Whether it is one of the ten languages of the paper's main table and so of the benchmark `PosIR`."""
    cross_lingual_in_paper: bool = False
    """Whether the paper reports it against the English corpus, and so of the benchmark `PosIR(cross-lingual)`."""

    def __post_init__(self) -> None:
        for field, form, wanted in (
            ("name", NAME, "an English name of the letters A to Z that begins with a capital, such as Finnish"),
            ("code", CODE, "three small letters of ISO 639-3, a hyphen and four letters of ISO 15924, such as fin-Latn"),
        ):
            value = getattr(self, field)
            if not (isinstance(value, str) and form.fullmatch(value)):
                what = f"{value!r} is not {wanted}" if value else f"is missing; wanted is {wanted}"
                raise mistake(self, f"{field} {what}")


def mistake(language: Language, what: str) -> PosirError:
    """Return the error of a row of the table."""
    return PosirError(
        f"posir_tasks/languages.py: Language({language.name!r}, {language.code!r}): {what}. A row of LANGUAGES is "
        'Language("Finnish", "fin-Latn").'
    )


def unique_languages(*languages: Language) -> tuple[Language, ...]:
    """Return the languages.

    Raises:
        PosirError: Two share a name or a code.
    """
    for field in ("name", "code"):
        counts = Counter(getattr(language, field) for language in languages)
        for language in reversed(languages):
            if counts[getattr(language, field)] > 1:
                raise mistake(language, f"the {field} {getattr(language, field)!r} is there already; take one of the rows out")
    return languages


def check_iso_codes(languages: Iterable[Language]) -> None:
    """Look the codes up in mteb's tables of ISO 639-3 and ISO 15924; importing them imports mteb.

    Raises:
        PosirError: There is no such language or script.
    """
    from mteb.languages import ISO_TO_LANGUAGE, ISO_TO_SCRIPT

    for language in languages:
        code, script = language.code.split("-")
        for part, known, standard in ((code, ISO_TO_LANGUAGE, "ISO 639-3"), (script, ISO_TO_SCRIPT, "ISO 15924")):
            if part not in known:
                raise mistake(language, f"{standard} has no code {part!r}; look it up in `mteb.languages`")


#: Source of names and codes: the folders of infgrad/PosIR-Benchmark-v1; of the marks, arXiv 2601.08363.
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

#: The language whose corpus the cross-lingual tasks search.
PIVOT = LANGUAGES[0]


#: The 31 domains, as the data's folders are expected to be spelled. A listing of the data itself overrules this one.
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
