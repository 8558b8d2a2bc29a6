"""Recognize unanswerable questions by flags, or by texts that replace the answer.

QuAC (arXiv 1808.07036) and DoQA append `CANNOTANSWER` to contexts, and CoQA (arXiv 1808.07042) in
SQuAD format appends `unknown`. SQuAD 2.0 readers prepend `[CLS]`. MS MARCO uses `No Answer
Present.`, RepLiQA `UNANSWERABLE` and `NA`, Qasper `Unanswerable`.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from posir_tasks.data.formats.passages import Answer

#: Unambiguous markers, which never occur as words.
CLEAR_MARKER = re.compile(
    r"[\[<{(]*(CANNOT_?ANSWER|NO_?ANSWER|NOT_ANSWERABLE)[\]>})]*|[\[<](no[_ "
    r"]?answer|unanswerable)[\]>]"
)
#: Lower-case markers that may also be ordinary words. As the last sentence of a text, they are
#: markers.
AMBIGUOUS_MARKERS = frozenset(
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
#: Markers that precede or follow a text.
AFFIXES = frozenset({"[CLS]", "<s>", "<cls>", "[UNK]", "<unk>"})
#: End of the sentence before a marker.
SENTENCE_END = re.compile(r"[.!?。！？؟।…\"'”’»)\]]\s*$")
TRUE = frozenset({"true", "1", "1.0", "yes"})
FALSE = frozenset({"false", "0", "0.0", "no"})
#: Question flags, and their values for unanswerable questions.
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


def is_flagged_unanswerable(fields: Mapping[str, object]) -> bool:
    """Return True if a flag marks a question as unanswerable."""
    flags = NO_ANSWER_FLAGS.keys() & fields.keys()
    return any(str(fields[name]).strip().lower() in NO_ANSWER_FLAGS[name] for name in flags)


@lru_cache
def is_clear_marker(text: str | None) -> bool:
    """Return True for a blank answer or an unambiguous marker."""
    return text is not None and (
        not text.strip() or CLEAR_MARKER.fullmatch(text.strip()) is not None
    )


def is_no_answer_marker(answer: Answer, document: str) -> bool:
    """Return True if an answer is a marker of a missing answer.

    An ambiguous word is a marker if the document does not contain it, or ends with it as a separate
    sentence.
    """
    if answer.text is None or is_clear_marker(answer.text):
        return answer.text is not None
    bare = answer.text.strip()
    is_affix = bare in AFFIXES
    if not is_affix and bare.lower().rstrip(".") not in AMBIGUOUS_MARKERS:
        return False
    count = document.count(bare)
    # Without a start, the occurrence must be unique.
    start = document.find(bare) if answer.start is None else max(0, answer.start)
    if count == 0:
        return True
    if count > 1 and answer.start is None:
        return False
    before = document[:start]
    after = document[start + len(bare) :]
    if is_affix:
        return not before.strip() or not after.strip()
    return not after.strip() and SENTENCE_END.search(before) is not None


def select_answers(answers: Iterable[Answer], document: str) -> list[Answer]:
    """Return the answers that are not markers. As in QuAC's evaluation, unambiguous markers are
    votes for a missing answer: at least as many votes as answers discard all answers.

    Blank answers and ambiguous words do not count as votes.
    """
    selection = []
    votes = 0
    for answer in answers:
        if not is_no_answer_marker(answer, document):
            selection.append(answer)
        elif (answer.text or "").strip() and is_clear_marker(answer.text):
            votes += 1
    return selection if votes < len(selection) else []
