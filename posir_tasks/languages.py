"""The languages of PosIR. A new language is one row of `LANGUAGES` plus data in the documented layout."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Language:
    """A language of the data."""

    name: str
    """English name, as in `PosIR-<name>`."""
    code: str
    """Code as the data's folders have it: ISO 639-3 and script, such as `eng-Latn`."""
    in_paper: bool = False
    """Whether it is one of the ten languages of the paper's main table and so of the benchmark `PosIR`."""
    cross_lingual_in_paper: bool = False
    """Whether the paper reports it against the English corpus, and so of the benchmark `PosIR(cross-lingual)`."""


#: Source of names and codes: the folders of infgrad/PosIR-Benchmark-v1; of the marks, arXiv 2601.08363.
LANGUAGES = (
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
