"""The settings of `posir build`: a YAML file, checked field by field."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from posir_tasks.base.errors import PosirError
from posir_tasks.base.settings_file import Section
from posir_tasks.data.posir import DOMAIN_NAME, DOMAIN_RULE
from posir_tasks.language_models.settings import Count, LanguageModelSettings
from posir_tasks.models.references import ModelReference
from posir_tasks.text.languages import check_code

Share = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
#: A grade of relevance, or a difference of grades.
Grade = Annotated[int, Field(ge=0, le=4)]
Name = Annotated[str, Field(min_length=1)]
#: The license of documents where the settings name none.
NO_LICENSE = "not specified"
#: The stages in order.
STAGE_NAMES = ("sample", "ask", "locate", "verify", "false-negatives", "balance")


def _check_code(code: str) -> str:
    try:
        check_code(code)
    except PosirError as error:
        raise ValueError(str(error)) from None
    return code


LanguageCode = Annotated[str, AfterValidator(_check_code)]


class LengthBucket(Section):
    """A range of document lengths in tokens, and its share of the sample."""

    minimum: Annotated[int, Field(ge=0)]
    maximum: Count
    """Included."""
    share: Annotated[float, Field(gt=0)]
    """Relative to those of the other buckets."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum} is greater than maximum {self.maximum}")
        return self

    def __str__(self) -> str:
        return f"{self.minimum:,} to {self.maximum:,}"


#: PosIR (PosIR, section 2.1): eight buckets of 256 tokens, 3:3:3:3:2:2:2:2. The paper states no
#: edges.
POSIR_LENGTHS = tuple(
    LengthBucket(minimum=256 * row + 1, maximum=256 * (row + 1), share=3 if row < 4 else 2)
    for row in range(8)
)
#: Built-in or Learned (arXiv 2605.26578, section 3.1.1): five buckets from 256 to 8,192 characters,
#: equal in number.
FIVE_LENGTHS = tuple(
    LengthBucket(minimum=2**row + (row > 8), maximum=2 ** (row + 1), share=1)
    for row in range(8, 13)
)

#: Buckets by name.
LENGTHS = {
    "posir": POSIR_LENGTHS,
    "five": FIVE_LENGTHS,
    "any": (LengthBucket(minimum=1, maximum=2**31 - 1, share=1),),
}

#: The unit of document lengths.
LengthUnit = Literal["tokens", "words", "characters"]


class SampleSettings(Section):
    """Settings of the sample: which documents are the corpus."""

    documents: Count = 1000
    lengths: Literal["posir", "five", "any"] | tuple[LengthBucket, ...] = "posir"
    """posir: eight buckets of tokens; five: those of arXiv 2605.26578, in characters; any; or a
    list of buckets.
    """
    unit: LengthUnit = "tokens"
    """Unit of a list of buckets; FineWeb-PosQ (arXiv 2505.13950) has 500 to 1,024 words."""
    near_duplicate: Annotated[float, Field(gt=0, le=1)] | None = 0.8
    """Jaccard similarity of word 5-grams from which the later of two documents is dropped; null to
    keep all.
    """
    check_language: bool = True

    @field_validator("lengths", mode="before")
    @classmethod
    def _named_or_list(cls, value: Any) -> Any:
        if not (isinstance(value, Sequence) and (not isinstance(value, str) or value in LENGTHS)):
            raise ValueError(
                "Input should be posir, five, any, or a list of [{minimum: 1, maximum: 512, share: "
                "1}, ...]"
            )
        return value

    @model_validator(mode="after")
    def _disjoint(self) -> Self:
        buckets = sorted(self.buckets(), key=lambda bucket: bucket.minimum)
        if not buckets:
            raise ValueError("lengths: at least one bucket is needed")
        for bucket, other in pairwise(buckets):
            if other.minimum <= bucket.maximum:
                raise ValueError(
                    f"lengths: {bucket} and {other} {self.measured} overlap; the maximum is "
                    "included"
                )
        return self

    @property
    def measured(self) -> LengthUnit:
        """The unit of the buckets."""
        if isinstance(self.lengths, str):
            return "characters" if self.lengths == "five" else "tokens"
        return self.unit

    def buckets(self) -> tuple[LengthBucket, ...]:
        """List the length buckets."""
        return LENGTHS[self.lengths] if isinstance(self.lengths, str) else self.lengths


class AskingSection(Section):
    """A stage that asks a language model."""

    llm: LanguageModelSettings | None = None
    """The model of this stage; None for the language model of the build. PosQ (arXiv 2505.13950)
    generates with gpt-4o-mini and judges with DeepSeek-V3; PosIR (arXiv 2601.08363) generates with
    DeepSeek-V3.1 and translates with Qwen3-30B-A3B.
    """


#: The way in which questions are asked for. positional: PosIR (arXiv 2601.08363): the whole
#: document, and the third that the question should be about; chunk: PosQ (arXiv 2505.13950): a
#: summary of the document, and one chunk; persona: Built-in or Learned (arXiv 2605.26578): a
#: persona is chosen first; then one query per segment; given: no model is asked.
AskMethod = Literal["positional", "chunk", "persona", "given"]


#: posir: prompts of posir, for every method. posq: those of PosQ (arXiv 2505.13950), for `chunk`.
PromptSet = Literal["posir", "posq"]


class AskSettings(AskingSection):
    """Settings of the generation of questions."""

    method: AskMethod = "positional"
    """given: the questions that the data of the documents has, with their spans, which `locate`
    checks. A translation with the spans of its original has them at the same share of its text.
    """
    documents: Count | None = None
    """Number of documents that questions are asked about; null for all."""
    draws: Annotated[int, Field(ge=1, le=3)] = 3
    """Thirds of each document that are asked about, drawn without replacement, for `positional`.
    PosIR draws one; with all three, every position has as many calls, and a document as many
    chances.
    """
    questions: Count = 3
    """Questions per call; the prompts of PosQ have no limit."""
    chunk_words: Count = 256
    """Words of a chunk, for `chunk`."""
    personas: Path | None = None
    """Personas, for `persona`: a text file with one a line, or rows with a field `persona`, such as
    those of PersonaHub; null for a short list that comes with posir.
    """
    personas_offered: Count = 20
    """Personas that the model chooses from, for each document."""
    persona_embedder: str | None = None
    """Model that finds the personas nearest to a document: name, folder, endpoint (arXiv
    2605.26578: BAAI/bge-m3); null to draw them at random.
    """
    similar: Share = 0.95
    """Similarity from which two questions about a document are the same."""


class LocateSettings(AskingSection):
    """Settings of the search for an answer's evidence in its document."""

    similarity: Share = 0.85
    """Least similarity of a quote and the text that it is matched with, if it does not occur
    exactly.
    """
    max_share: Share = 0.5
    """Longest span, as a share of its document."""
    keep_labels: bool = False
    """Whether questions that are `given` keep the spans of their data, not those that the model
    finds.
    """


class RerankerSettings(Section):
    """A cross-encoder or an encoder that mteb loads."""

    model: Name
    """Name, folder, or endpoint."""
    revision: str | None = None
    # Probabilities are in [0, 1]; logits are passed through the logistic function.
    scale: Literal["probability", "logit"] = "probability"

    @property
    def reference(self) -> ModelReference:
        """The model with its revision."""
        return ModelReference(self.model, self.revision)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"model": value} if isinstance(value, str) else value


class VerifySettings(AskingSection):
    """Settings of the checks of a question and its span."""

    rerankers: tuple[RerankerSettings, ...] = ()
    # PosQ: every reranker ranks the segment of the evidence first among the document's thirds;
    # Built-in or Learned: so does every reranker, by a margin; PosIR: every reranker scores the
    # document above the document without the span.
    rerank_rule: Literal["segments", "margin", "span"] = "span"
    margin: NonNegative = 0.3
    """Least difference of scores, for `margin`."""
    balance: bool = False
    """Whether each third keeps as many questions as the smallest, after the rerankers and before
    the judge (PosQ).
    """
    # Grades of the segment with the evidence and the others (PosQ), or of the document with and
    # without the span (PosIR).
    relevance: Literal["segments", "span", "none"] = "span"
    level: Grade = 3
    """Least relevance of the text with the evidence."""
    gap: Grade = 1
    """Least difference in relevance to the text without it."""
    leave_out: bool = True
    """Whether a judge who reads the document without the span must find no answer."""
    audit: bool = False
    """Whether a judge reads each third by itself, for the report; no question is dropped. Where
    rerankers compare segments, questions that they discarded are audited, too.
    """
    audit_sample: Count | None = None
    """Questions that are audited, in each range of margins; null for all."""
    margins: Annotated[tuple[float, ...], Field(min_length=1)] = (0.0, 0.1, 0.2, 0.3)
    """Margins at which the report counts questions, and between which it shows the audit (arXiv
    2605.26578).
    """

    @field_validator("margins")
    @classmethod
    def _ascending(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if list(value) != sorted(set(value)):
            raise ValueError("each threshold must be greater than the one before")
        return value


class FalseNegativeSettings(Section):
    """Settings of the search for documents that answer a question and are not its own."""

    embedder: str | None = None
    """Model that recalls documents: name, folder, endpoint; null to skip the stage."""
    revision: str | None = None
    recall: Count = 1000
    rerankers: tuple[RerankerSettings, ...] = ()
    # PosQ removes the question, PosIR the document, and every question about it.
    rule: Literal["question", "document"] = "question"
    threshold: Share = 0.2
    """Score from which a reranker suspects a document, for `question`. PosQ has 0.5; a lower one
    leaves more to the judges, and similarities of embeddings are lower than probabilities.
    """
    votes: Count = 2
    """Rerankers that must suspect it (at most all), and judges that must confirm it, for
    `question`.
    """
    panel: tuple[LanguageModelSettings, ...] = ()
    """Judges; empty for the language model of Verify alone."""
    level: Grade = 3
    """Relevance from which a judge confirms."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.embedder and not self.rerankers:
            raise ValueError("the documents that the embedder recalls need at least one reranker")
        return self


#: The length buckets of cells. posir: Those of every report, in tokens; five: Those of arXiv
#: 2605.26578, in characters.
CellLengths = Literal["posir", "five"]


class BalanceSettings(Section):
    """Settings of the number of questions in each cell of length and position, and of their
    split.
    """

    cells: CellLengths = "posir"
    """Lengths of the cells: posir, those of every report, in tokens; five, those of arXiv
    2605.26578, in characters.
    """
    per_cell: Count | Literal["smallest"] | None = None
    """Most questions in a cell; smallest, as many in every cell as in the smallest one, without the
    lengths that have no question at some position (arXiv 2605.26578); null for no limit.
    """
    position_effect: Annotated[float, Field(gt=0, lt=100)] | None = 10.0
    """The position effect, in points, that the dataset should show."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the questions in the held-out part, by document."""
    held_out_output: Path | None = None
    """Folder of the held-out part; null for that of the dataset with `-held-out`."""


class TranslateSettings(AskingSection):
    """Languages into which corpus and questions are translated."""

    languages: tuple[LanguageCode, ...] = ()
    sentences: Count = 20
    """Sentences per call."""
    lower: NonNegative = 3.0
    """Interquartile ranges below the first quartile of token lengths from which a translation is an
    outlier.
    """
    upper: NonNegative = 1.5
    """Interquartile ranges above the third quartile."""
    judge: LanguageModelSettings | None = None
    """Model that decides about texts which begin as a refusal does, or are in another language, by
    their first 1,500 characters (PosIR, arXiv 2601.08363, appendix B: Qwen3-Max); null to discard
    all of these.
    """


class BuildSettings(Section):
    """Everything that a build is asked for."""

    documents: Name
    """Folder of text files, .jsonl or .parquet file, or dataset on the Hub (`owner/name` or
    `owner/name:configuration`).
    """
    revision: str | None = None
    """Branch, tag or commit of a dataset on the Hub; null for the newest. The provenance of every
    question has the commit.
    """
    text_field: str | None = None
    id_field: str | None = None
    """null for `id` or `_id` if there is one, or else the row number."""
    license: str = NO_LICENSE
    """License of the documents, for the dataset card."""
    language: LanguageCode
    domain: str
    output: Path
    """Folder in the PosIR layout, such as data/PosIR-Benchmark-v1."""
    work: Path | None = None
    """Folder of the calls, intermediate results and reports; null for a folder named after the
    domain, with `-build`.
    """
    seed: int = 42
    tokenizer: str | None = None
    """Hugging Face tokenizer for lengths; null for one token per four bytes of UTF-8."""
    llm: LanguageModelSettings
    prompts: PromptSet = "posir"
    """posq: prompts with the inputs, outputs and scale of relevance of PosQ (arXiv 2505.13950)."""
    sample: SampleSettings = SampleSettings()
    ask: AskSettings = AskSettings()
    locate: LocateSettings = LocateSettings()
    verify: VerifySettings = VerifySettings()
    false_negatives: FalseNegativeSettings = FalseNegativeSettings()
    balance: BalanceSettings = BalanceSettings()
    translate: TranslateSettings = TranslateSettings()

    @field_validator("domain")
    @classmethod
    def _folder_name(cls, value: str) -> str:
        if not DOMAIN_NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not {DOMAIN_RULE}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        languages = [self.language, *self.translate.languages]
        for code in languages:
            if languages.count(code) > 1:
                raise ValueError(
                    f"translate.languages: {code} is the language of the documents, or named "
                    "twice; remove it"
                )
        if self.held_out_folder.resolve() == self.output.resolve():
            raise ValueError(
                f"balance.held_out_output: {self.output} is the output too; the parts need a "
                "folder each"
            )
        if self.prompts == "posq" and self.ask.method not in ("chunk", "given"):
            raise ValueError(
                f"prompts: posq has no prompt for ask.method {self.ask.method}; set ask.method to "
                "chunk, or to given"
            )
        prices = [model.prices for model in self.list_llms()]
        currencies = sorted({price.currency for price in prices if price.given})
        if len(currencies) > 1:
            raise ValueError(
                f"prices in {' and '.join(currencies)} cannot be added up; give all of them in "
                "one currency"
            )
        return self

    @property
    def work_folder(self) -> Path:
        """Folder of the calls, intermediate results and reports."""
        return self.work or Path(f"{self.domain}-build")

    @property
    def held_out_folder(self) -> Path:
        """Folder of the held-out part, in the PosIR layout."""
        return self.balance.held_out_output or self.output.with_name(f"{self.output.name}-held-out")

    def choose_llms(self, stage: str) -> tuple[LanguageModelSettings, ...]:
        """List the language models of a stage: for false negatives several, for refusals one or
        none, else one.
        """
        if stage == "refusals":
            return (self.translate.judge,) if self.translate.judge else ()
        if stage == "false-negatives" and self.false_negatives.panel:
            return self.false_negatives.panel
        sections: dict[str, AskingSection] = {
            "ask": self.ask,
            "locate": self.locate,
            "translate": self.translate,
        }
        return (sections.get(stage, self.verify).llm or self.llm,)

    def list_llms(self) -> list[LanguageModelSettings]:
        """List every language model that the build may ask, once."""
        stages = ("ask", "locate", "verify", "false-negatives", "translate", "refusals")
        return list(dict.fromkeys(model for stage in stages for model in self.choose_llms(stage)))
