"""Language codes of all languages are checked, with suggestions for invalid codes."""

import re
import subprocess
import sys

import pytest
from mteb.languages import ISO_TO_LANGUAGE, ISO_TO_SCRIPT

from posir_tasks.base.errors import PosirError
from posir_tasks.text.languages import (
    LANGUAGES,
    PIVOT,
    Language,
    check_code,
    find_default_script,
    find_language,
    list_language_names,
    list_macrolanguages,
    name_languages,
)

EXAMPLES = {
    "pes-Arab": "Persian",
    "tha-Thai": "Thai",
    "jpn-Jpan": "Japanese",
    "ekk-Latn": "Estonian",
    "zsm-Latn": "Malay",
}


def test_codes_of_all_individual_languages_and_scripts_are_valid():
    for code in (
        *EXAMPLES,
        *(language.code for language in LANGUAGES),
        "srp-Latn",
        "cmn-Hant",
        "arb-Arab",
    ):
        check_code(code)
    for language in list_language_names().keys() - {"ara"}:
        check_code(f"{language}-Latn")
    for script in ISO_TO_SCRIPT:
        check_code(f"fin-{script}")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("fas-Arab", "'fas' is a macrolanguage, Persian; did you mean pes-Arab?"),
        ("zho-Hant", "did you mean cmn-Hant?"),
        ("fa", "ISO 639-3 has no individual language 'fa'; did you mean pes-Arab?"),
        ("ar", "did you mean ara-Arab?"),
        ("tha", "the script is missing; did you mean tha-Thai?"),
        ("THA_thai", "did you mean tha-Thai?"),
        ("fin-Lant", "ISO 15924 has no script 'Lant'; did you mean fin-Latn?"),
        ("eng-Code", "ISO 15924 has no script 'Code'"),
        ("Greek", "did you mean ell-Grek?"),
        ("nor-Latn", "did you mean nob-Latn or nno-Latn?"),
        ("mul-Latn", "ISO 639-3 has no individual language 'mul'"),
        ("../eng-Latn", "ISO 639-3 has no individual language '../eng'"),
        ("", "ISO 639-3 has no individual language ''"),
    ],
)
def test_invalid_codes_are_rejected_with_suggestions(code, message):
    with pytest.raises(PosirError, match=re.escape(message)):
        check_code(code)


def test_members_of_macrolanguages_are_individual_languages():
    for members in list_macrolanguages().values():
        assert {*members} <= ISO_TO_LANGUAGE.keys() - list_macrolanguages().keys()


def test_names_are_unique_and_can_be_looked_up():
    names = list_language_names()
    assert len({*names.values()}) == len(names) > 7_000
    assert all(re.fullmatch("[A-Z][A-Za-z]*", name) for name in names.values())
    for code, name in EXAMPLES.items():
        assert find_language(name, list) == Language(name, code)
        assert find_language(f"{name}-{code[4:]}", list).code == code


def test_names_include_the_script_if_necessary():
    codes = ["pes-Arab", "srp-Latn", "cmn-Hant", "fas-Arab", "eng-Latn", "junk", "uzn-Cyrl"]
    assert [language.name for language in name_languages(codes)] == [
        "Chinese-Hant",
        "Persian",
        "Serbian-Latn",
        "Uzbek-Cyrl",
    ]
    assert [language.name for language in name_languages(["srp-Latn", "srp-Cyrl"])] == [
        "Serbian-Cyrl",
        "Serbian-Latn",
    ]
    assert find_language("Serbian", list).code == "srp-Cyrl"
    assert find_language("Serbian-Latn", list).code == "srp-Latn"


def test_the_data_determines_the_script_without_a_default():
    assert find_default_script("pnb") == find_default_script("lah") == "Arab"
    code = next(code for code in list_language_names() if find_default_script(code) is None)
    name = list_language_names()[code]
    assert find_language(name, list) is None
    assert find_language(name, lambda: [f"{code}-Cyrl", "eng-Latn"]).code == f"{code}-Cyrl"
    assert find_language(name, lambda: [f"{code}-Cyrl", f"{code}-Latn"]) is None


@pytest.mark.parametrize(
    "name",
    ["Germany", "Klingonese", "German-Latn", "Persian-Xxxx", "persian", "", "English-English"],
)
def test_unknown_names_are_not_languages(name):
    assert find_language(name, list) is None


def test_the_table_contains_the_languages_of_the_paper():
    assert (
        len({language.name for language in LANGUAGES})
        == len({language.code for language in LANGUAGES})
        == 10
    )
    assert sum(language.cross_lingual_in_paper for language in LANGUAGES) == 8
    assert all(
        language.code[:3] in ISO_TO_LANGUAGE and language.code[4:] in ISO_TO_SCRIPT
        for language in LANGUAGES
    )
    assert PIVOT.code == "eng-Latn"


def test_checking_codes_does_not_import_mteb():
    code = (
        "import sys, posir_tasks.text.languages as c; c.check_code('deu-Latn'); sys.exit('mteb' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
