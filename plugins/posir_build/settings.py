"""Settings of `posir build`, as read from a YAML file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from posir_tasks.base.errors import PosirError
from posir_tasks.base.settings_file import Section
from posir_tasks.base.untrusted import find_repeated
from posir_tasks.data.posir import DOMAIN_NAME, DOMAIN_RULE
from posir_tasks.language_models.settings import Count, LanguageModelSettings
from posir_tasks.models.references import ModelReference
from posir_tasks.text.languages import check_code

Share = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
#: A relevance grade, or a difference of two grades.
Grade = Annotated[int, Field(ge=0, le=4)]
NonEmptyString = Annotated[str, Field(min_length=1)]
#: Default license of the documents.
NO_LICENSE = "not specified"
#: The stages in order.
StageName = Literal["sample", "ask", "locate", "verify", "false-negatives", "balance"]
STAGE_NAMES: tuple[StageName, ...] = get_args(StageName)


def _check_code(code: str) -> str:
    try:
        check_code(code)
    except PosirError as error:
        raise ValueError(str(error)) from None
    return code


LanguageCode = Annotated[str, AfterValidator(_check_code)]
Number = TypeVar("Number", int, float)


def _check_order(numbers: tuple[Number, ...]) -> tuple[Number, ...]:
    if list(numbers) != sorted(set(numbers)):
        raise ValueError("each number must be greater than the previous number")
    return numbers


IncreasingNumbers = Annotated[tuple[Number, ...], AfterValidator(_check_order)]


class LengthBucket(Section):
    """A range of document lengths and its share of the sample."""

    minimum: Annotated[int, Field(ge=0)]
    maximum: Count
    """Maximum length, inclusive."""
    share: Annotated[float, Field(gt=0)]
    """Weight relative to other buckets."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum} is greater than maximum {self.maximum}")
        return self

    def __str__(self) -> str:
        return f"{self.minimum:,} to {self.maximum:,}"


#: PosIR (arXiv 2601.08363, section 2.1): eight buckets with weights 3:3:3:3:2:2:2:2. The paper does
#: not state the edges.
POSIR_LENGTHS = tuple(
    LengthBucket(minimum=256 * row + 1, maximum=256 * (row + 1), share=3 if row < 4 else 2)
    for row in range(8)
)
#: Built-in or Learned (arXiv 2605.26578, section 3.1.1): five buckets of 256 to 8,192 characters
#: with the same number of documents.
BUILT_IN_LENGTHS = tuple(
    LengthBucket(minimum=2**row + (row > 8), maximum=2 ** (row + 1), share=1)
    for row in range(8, 13)
)

LENGTHS = {
    "posir": POSIR_LENGTHS,
    "five": BUILT_IN_LENGTHS,
    "any": (LengthBucket(minimum=1, maximum=2**31 - 1, share=1),),
}

#: The unit of document lengths.
LengthUnit = Literal["tokens", "words", "characters"]


class SampleSettings(Section):
    """Settings for sampling documents."""

    documents: Count = 1000
    lengths: Literal["posir", "five", "any"] | tuple[LengthBucket, ...] = "posir"
    """posir: eight buckets, in tokens; five: five buckets, in characters (arXiv 2605.26578); any:
    no limit; or a list of buckets.
    """
    unit: LengthUnit = "tokens"
    """Unit of your own buckets. Documents in FineWeb-PosQ (arXiv 2505.13950) have 500 to 1,024
    words.
    """
    near_duplicate: Annotated[float, Field(gt=0, le=1)] | None = 0.8
    """Jaccard similarity of word 5-grams from which the later of two documents is dropped; null to
    keep all documents.
    """
    check_language: bool = True

    @field_validator("lengths", mode="before")
    @classmethod
    def _check_lengths(cls, value: Any) -> Any:
        if not (isinstance(value, Sequence) and (not isinstance(value, str) or value in LENGTHS)):
            raise ValueError(
                "Input should be posir, five, any, or a list of [{minimum: 1, maximum: 512, share: "
                "1}, ...]"
            )
        return value

    @model_validator(mode="after")
    def _check_overlap(self) -> Self:
        buckets = sorted(self.buckets, key=lambda bucket: bucket.minimum)
        if not buckets:
            raise ValueError("lengths: at least one bucket is needed")
        for bucket, following in pairwise(buckets):
            if following.minimum <= bucket.maximum:
                raise ValueError(
                    f"lengths: {bucket} and {following} {self.bucket_unit} overlap; the maximum "
                    "is inclusive"
                )
        return self

    @property
    def bucket_unit(self) -> LengthUnit:
        """Unit of the bucket edges."""
        if isinstance(self.lengths, str):
            return "characters" if self.lengths == "five" else "tokens"
        return self.unit

    @property
    def buckets(self) -> tuple[LengthBucket, ...]:
        """The length buckets."""
        return LENGTHS[self.lengths] if isinstance(self.lengths, str) else self.lengths


class LLMStageSettings(Section):
    """Settings of a stage that calls a language model."""

    llm: LanguageModelSettings | None = None
    """Language model for this stage; null for the build's `llm`. PosQ (arXiv 2505.13950) generates
    with gpt-4o-mini and judges with DeepSeek-V3; PosIR (arXiv 2601.08363) generates with
    DeepSeek-V3.1 and translates with Qwen3-30B-A3B.
    """


#: Method to generate questions. positional (PosIR, arXiv 2601.08363): the prompt contains the whole
#: document and names the third to ask about. chunk (PosQ, arXiv 2505.13950): the prompt contains a
#: summary of the document and one chunk. persona (Built-in or Learned, arXiv 2605.26578): the model
#: chooses a persona, then writes one query per segment. given: the questions in the data are used.
AskMethod = Literal["positional", "chunk", "persona", "given"]


#: posir: posir's prompts, for every method. posq: PosQ's prompts (arXiv 2505.13950), for `chunk`.
PromptSet = Literal["posir", "posq"]


class AskSettings(LLMStageSettings):
    """Settings for generating questions."""

    method: AskMethod = "positional"
    """Method to generate questions. `given` takes questions and spans from the data, and `locate`
    checks the spans. Spans that a translation copies from its original are scaled to the
    translation's length.
    """
    documents: Count | None = None
    """Number of documents to ask about; null for all."""
    draws: Annotated[int, Field(ge=1, le=3)] = 3
    """Number of thirds to ask about per document, for `positional`. PosIR samples one third; with
    3, every position and document gets the same number of calls.
    """
    questions: Count = 3
    """Questions per call; ignored by PosQ's prompts, which have no limit."""
    chunk_words: Count = 256
    """Maximum number of words per chunk, for `chunk`."""
    personas: Path | None = None
    """Persona file, for `persona`: a text file with one persona per line, or rows with a field
    `persona` as in PersonaHub; null for posir's short list.
    """
    personas_offered: Count = 20
    """Number of personas per document for the model to choose from."""
    persona_embedder: str | None = None
    """Embedding model that finds the nearest personas for a document: name, folder or endpoint
    (arXiv 2605.26578: BAAI/bge-m3); null for a random sample.
    """
    similar: Share = 0.95
    """Similarity from which two questions about a document count as duplicates."""


class LocateSettings(LLMStageSettings):
    """Settings for locating evidence spans."""

    similarity: Share = 0.85
    """Minimum similarity between a quote and a fuzzy match."""
    max_share: Share = 0.5
    """Maximum length of a span, as a share of its document."""
    keep_labels: bool = False
    """If true, `given` questions keep the spans in the data, which are only compared with the
    model's spans.
    """


class RerankerSettings(Section):
    """A cross-encoder or embedding model used as a reranker."""

    model: NonEmptyString
    """Name, folder or endpoint."""
    revision: str | None = None
    scale: Literal["probability", "logit"] = "probability"
    """Scale of the scores: probabilities in [0, 1], or logits, which are converted to
    probabilities.
    """

    @property
    def reference(self) -> ModelReference:
        """The model with its revision."""
        return ModelReference(self.model, self.revision)

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, value: Any) -> Any:
        return {"model": value} if isinstance(value, str) else value


class VerifySettings(LLMStageSettings):
    """Settings for checking questions and their spans."""

    rerankers: tuple[RerankerSettings, ...] = ()
    rerank_rule: Literal["segments", "margin", "span"] = "span"
    """segments (PosQ): every reranker ranks the segment with the evidence first among the
    document's thirds. margin (Built-in or Learned): the same, by at least `margin`. span (PosIR):
    every reranker scores the document above the document without the span.
    """
    margin: NonNegative = 0.3
    """Minimum score difference, for `margin`."""
    balance: bool = False
    """If true, every third is reduced to the size of the smallest third, after the rerankers and
    before the judge (PosQ).
    """
    relevance: Literal["segments", "span", "none"] = "span"
    """Texts to grade. segments (PosQ): the three segments. span (PosIR): the document with and
    without the span.
    """
    level: Grade = 3
    """Minimum relevance grade of the text with the evidence."""
    gap: Grade = 1
    """Minimum difference between the grades with and without the evidence."""
    leave_out: bool = True
    """If true, discard questions that a judge can answer from the document without the span."""
    audit: bool = False
    """If true, a judge reads each third separately, for the report only. The audit includes
    questions that rerankers discarded because of their segments.
    """
    audit_sample: Count | None = None
    """Number of audited questions per margin range; null for all."""
    margins: Annotated[IncreasingNumbers[float], Field(min_length=1)] = (0.0, 0.1, 0.2, 0.3)
    """Margin thresholds for the counts and the audit in the report (arXiv 2605.26578)."""


class FalseNegativeSettings(Section):
    """Settings for finding other documents that answer a question."""

    embedder: str | None = None
    """Embedding model that retrieves candidate documents: name, folder or endpoint; null to skip
    the stage.
    """
    revision: str | None = None
    recall: Count = 1000
    """Number of candidate documents per question."""
    rerankers: tuple[RerankerSettings, ...] = ()
    rule: Literal["question", "document"] = "question"
    """Item to remove for a false negative. question (PosQ): the question. document (PosIR): the
    document with all of its questions.
    """
    threshold: Share = 0.2
    """Minimum reranker score to flag a document, for `question`. PosQ uses 0.5. A lower threshold
    leaves more decisions to the judges and suits embedding similarities, which are lower than
    probabilities.
    """
    votes: Count = 2
    """Number of rerankers that must flag a document, and of judges that must confirm it, for
    `question`. If there are fewer, all of them must agree.
    """
    panel: tuple[LanguageModelSettings, ...] = ()
    """Judges; empty for the language model of the Verify stage."""
    level: Grade = 3
    """Minimum relevance grade to confirm a document."""

    @model_validator(mode="after")
    def _require_reranker(self) -> Self:
        if self.embedder and not self.rerankers:
            raise ValueError("the documents that the embedder retrieves need at least one reranker")
        return self


#: Length buckets of the cells. posir: the buckets in posir's reports, in tokens; five: the buckets
#: of arXiv 2605.26578, in characters.
CellLengths = Literal["posir", "five"]


class BalanceSettings(Section):
    """Settings for balancing questions over cells of length and position, and for the held-out
    split.
    """

    cells: CellLengths = "posir"
    """Length buckets of the cells. posir: the buckets in posir's reports, in tokens; five: the
    buckets of arXiv 2605.26578, in characters.
    """
    per_cell: Count | Literal["smallest"] | None = None
    """Maximum number of questions per cell; null for no limit. smallest: reduce every cell to the
    size of the smallest cell, after dropping lengths that have no questions at some position
    (arXiv 2605.26578).
    """
    position_effect: Annotated[float, Field(gt=0, lt=100)] | None = 10.0
    """Position effect, in points, that the dataset should be able to detect; null to skip the
    estimate.
    """
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of questions in the held-out part, split by document."""
    held_out_output: Path | None = None
    """Folder of the held-out part; null for the dataset's folder name with `-held-out`."""


class TranslateSettings(LLMStageSettings):
    """Settings for translating documents and questions."""

    languages: tuple[LanguageCode, ...] = ()
    sentences: Count = 20
    """Number of sentences per call."""
    lower: NonNegative = 3.0
    """Translations whose token length is more than this many interquartile ranges below the first
    quartile are discarded as outliers.
    """
    upper: NonNegative = 1.5
    """The same limit above the third quartile."""
    judge: LanguageModelSettings | None = None
    """Model that reads the first 1,500 characters of texts that look like refusals or are in
    another language, and decides whether to keep them (PosIR, arXiv 2601.08363, appendix B:
    Qwen3-Max); null to discard all of these texts.
    """


class BuildSettings(Section):
    """All settings of a build."""

    documents: NonEmptyString
    """Folder of text files, .jsonl or .parquet file, or dataset on the Hub (`owner/name` or
    `owner/name:configuration`).
    """
    revision: str | None = None
    """Branch, tag or commit of a dataset on the Hub; null for the newest commit. The commit is
    recorded in the provenance of every question.
    """
    text_field: str | None = None
    id_field: str | None = None
    """Field with the document id; null for `id` or `_id` if present, else the row number."""
    license: str = NO_LICENSE
    """License of the documents, for the dataset card."""
    language: LanguageCode
    domain: str
    output: Path
    """Folder in the PosIR layout, such as data/PosIR-Benchmark-v1."""
    work: Path | None = None
    """Folder for calls, intermediate results and reports; null for `DOMAIN-build`."""
    seed: int = 42
    tokenizer: str | None = None
    """Hugging Face tokenizer for lengths; null for one token per four bytes of UTF-8."""
    llm: LanguageModelSettings
    prompts: PromptSet = "posir"
    """posir: posir's own prompts. posq: the inputs, outputs and relevance scale of PosQ (arXiv
    2505.13950), for `chunk`.
    """
    sample: SampleSettings = SampleSettings()
    ask: AskSettings = AskSettings()
    locate: LocateSettings = LocateSettings()
    verify: VerifySettings = VerifySettings()
    false_negatives: FalseNegativeSettings = FalseNegativeSettings()
    balance: BalanceSettings = BalanceSettings()
    translate: TranslateSettings = TranslateSettings()

    @field_validator("domain")
    @classmethod
    def _check_folder_name(cls, value: str) -> str:
        if not DOMAIN_NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not {DOMAIN_RULE}")
        return value

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        languages = [self.language, *self.translate.languages]
        repeated_language = find_repeated(languages)
        if repeated_language:
            raise ValueError(
                f"translate.languages: {repeated_language} is the language of the documents or is "
                "listed twice; remove it"
            )
        if self.held_out_folder.resolve() == self.output.resolve():
            raise ValueError(
                f"balance.held_out_output: {self.output} is also the output; each part needs its "
                "own folder"
            )
        if self.prompts == "posq" and self.ask.method not in ("chunk", "given"):
            raise ValueError(
                f"prompts: posq has no prompt for ask.method {self.ask.method}; set ask.method to "
                "chunk or given"
            )
        prices = [model.prices for model in self.list_llms()]
        currencies = sorted({price.currency for price in prices if price.is_set})
        if len(currencies) > 1:
            raise ValueError(
                f"prices in {' and '.join(currencies)} cannot be added up; give all prices in one "
                "currency"
            )
        return self

    @property
    def work_folder(self) -> Path:
        """Folder for calls, intermediate results and reports."""
        return self.work or Path(f"{self.domain}-build")

    @property
    def held_out_folder(self) -> Path:
        """Folder of the held-out part, in the PosIR layout."""
        return self.balance.held_out_output or self.output.with_name(f"{self.output.name}-held-out")

    def list_stage_llms(self, stage: str) -> tuple[LanguageModelSettings, ...]:
        """List the language models of a stage: one or more for `false-negatives`, at most one for
        `refusals`, and one for other stages.
        """
        if stage == "refusals":
            return (self.translate.judge,) if self.translate.judge else ()
        if stage == "false-negatives" and self.false_negatives.panel:
            return self.false_negatives.panel
        section = getattr(self, stage, self.verify)
        return (getattr(section, "llm", None) or self.llm,)

    def list_llms(self) -> list[LanguageModelSettings]:
        """List the distinct language models that the build may call."""
        stages = ("ask", "locate", "verify", "false-negatives", "translate", "refusals")
        return list(
            dict.fromkeys(model for stage in stages for model in self.list_stage_llms(stage))
        )
