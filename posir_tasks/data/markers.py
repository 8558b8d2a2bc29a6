"""Markers of unanswerable questions: texts that datasets use instead of an answer, and flags.

`CANNOTANSWER` is appended to the contexts of QuAC (arXiv 1808.07036) and DoQA, `unknown` to those
of CoQA in SQuAD's form (arXiv 1808.07042), `[CLS]` is put before a context by readers of SQuAD 2.0;
MS MARCO has `No Answer Present.`, RepLiQA `UNANSWERABLE` and `NA`, Qasper `Unanswerable`.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from posir_tasks.data.formats.passages import Answer

#: Markers that never occur as words.
TOKEN = re.compile(
    r"[\[<{(]*(CANNOT_?ANSWER|NO_?ANSWER|NOT_ANSWERABLE)[\]>})]*|[\[<](no[_ "
    r"]?answer|unanswerable)[\]>]"
)
#: Lower-case markers that may also be words. They count at the end of a text, as a sentence of
#: their own.
WORDS = frozenset(
    (
        "unanswerable",
        "not answerable",
        "cannot answer",
        "no answer",
        "no answer present",
        "unknown",
        "none",
        "n/a",
        "na",
    )
)
#: Markers before a text.
PREFIXES = frozenset({"[CLS]", "<s>", "<cls>", "[UNK]", "<unk>"})
#: End of the sentence before a marker.
SENTENCE_END = re.compile(r"[.!?。！？؟।…\"'”’»)\]]\s*$")
TRUE = frozenset({"true", "1", "1.0", "yes"})
FALSE = frozenset({"false", "0", "0.0", "no"})
#: Flags of a question, with the values that mean that it has no answer.
NO_ANSWER_FLAGS = {
    "is_impossible": TRUE,
    "impossible": TRUE,
    "unanswerable": TRUE,
    "is_unanswerable": TRUE,
    "no_answer": TRUE,
    "isAnswerAbsent": TRUE,
    "answer_absent": TRUE,
    "answerable": FALSE,
    "is_answerable": FALSE,
    "isAnswerable": FALSE,
    "has_answer": FALSE,
}


def states_no_answer(fields: Mapping[str, object]) -> bool:
    """Return True if a flag of a question marks it as unanswerable."""
    flags = NO_ANSWER_FLAGS.keys() & fields.keys()
    return any(str(fields[name]).strip().lower() in NO_ANSWER_FLAGS[name] for name in flags)


@lru_cache
def is_token(text: str | None) -> bool:
    """Return True for a blank answer or an unambiguous marker of a missing answer."""
    return text is not None and (not text.strip() or TOKEN.fullmatch(text.strip()) is not None)


def marks_no_answer(answer: Answer, document: str) -> bool:
    """Return True if an answer is the marker of a missing answer.

    An ambiguous word is a marker if it is missing from the document, or follows its text as a
    sentence of its own.
    """
    if answer.text is None or is_token(answer.text):
        return answer.text is not None
    bare = answer.text.strip()
    is_prefix = bare in PREFIXES
    if not is_prefix and bare.lower().rstrip(".") not in WORDS:
        return False
    count = document.count(bare)
    # Without a start, only a single occurrence counts.
    start = document.find(bare) if answer.start is None else max(0, answer.start)
    if count == 0:
        return True
    if count > 1 and answer.start is None:
        return False
    before = document[:start]
    after = document[start + len(bare) :]
    if is_prefix:
        return not before.strip() or not after.strip()
    return not after.strip() and SENTENCE_END.search(before) is not None


def select_answers(answers: Iterable[Answer], document: str) -> list[Answer]:
    """Return the answers without markers; none if at least as many are unambiguous markers, as in
    QuAC's evaluation.

    Blank answers and words that are missing from the document have no vote.
    """
    selection = list[Answer]()
    votes = 0
    for answer in answers:
        if not marks_no_answer(answer, document):
            selection.append(answer)
        elif (answer.text or "").strip() and is_token(answer.text):
            votes += 1
    return selection if votes < len(selection) else []
