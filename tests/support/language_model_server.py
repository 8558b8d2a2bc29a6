"""A server with an OpenAI-compatible chat API that returns human answers and fails like real
models.

It looks up the documents of a `Truth` in the prompts of `posir build`. Failures depend only on the
request, so that a build that is killed and resumed gets the same failures.
"""

import hashlib
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.embedding_server import Handler, serve
from tests.support.human_answers import HumanDocument, HumanQuestion, Truth

#: Default failure rates, similar to a good model. Transport failures occur only the first time that
#: a request is sent.
RATES = {
    "rate limit": 0.03,
    "server error": 0.02,
    "dropped connection": 0.01,
    "time-out": 0.0,
    "prose around JSON": 0.06,
    "cut JSON": 0.03,
    "refusal": 0.03,
    "wrong fields": 0.01,
    "names the position": 0.04,
    "refers to the text": 0.02,
    "another language": 0.04,
    "duplicate": 0.03,
    "unanswerable question": 0.05,
    "question about another third": 0.04,
    "paraphrased quote": 0.04,
    "doubled quote": 0.02,
    "changed number": 0.03,
    "changed negation": 0.01,
    "answer from another part": 0.04,
    "wrong sentence number": 0.01,
    "evidence for the unanswerable": 0.2,
    "wrong grade": 0.01,
    "wrong verdict": 0.01,
    "prefix": 0.05,
    "untranslated": 0.03,
    "missing sentence": 0.02,
    "same words": 0.1,
    # Failures of small models.
    "thoughts": 0.0,
    "cut thoughts": 0.0,
    "parts": 0.0,
    "empty": 0.0,
    "repeated text": 0.0,
    "trailing comma": 0.0,
    "other spelling": 0.0,
    "wrapper": 0.0,
    "no choices": 0.0,
    "refusal as question": 0.0,
    "same question": 0.0,
}
NO_FAILURES = dict.fromkeys(RATES, 0.0)
#: Words on either side of an answer in a quote, and maximum number of characters.
CONTEXT_WORDS, LONGEST_CONTEXT = 4, 40
#: Characters on either side of an answer to recognize it in other texts.
CONTEXT_CHARACTERS = 25
OTHER_LANGUAGE = "Warum möchte jemand überhaupt wissen, weshalb diese Frage gestellt wurde?"
REFUSAL = "I'm sorry, but I can't help with that request."


@dataclass
class LanguageModelServer:
    """The server's documents, failure rates, and counts of requests."""

    truth: Truth
    rates: dict[str, float] = field(default_factory=RATES.copy)
    seed: int = 0
    seconds: float = 0.0
    key: str | None = None
    """The accepted key; None to accept all requests."""
    translate: Callable[[str], str] | None = None
    max_characters: int | None = None
    """Maximum length of a message; longer messages are rejected."""
    times: list[float] = field(default_factory=list)
    """Times of requests without an answer by a model."""
    status: int | None = None
    """Status of every response, if set."""
    snapshot: str = ""
    """Model named in responses; empty for the requested model."""
    page: str | None = None
    """Text to return instead of JSON for every request, like a proxy's error page."""
    model = "human"
    rewrite = None
    seen: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    """Number of responses with status 200, by idempotency key."""
    failures: Counter[str] = field(default_factory=Counter)
    in_flight: set[int] = field(default_factory=set)
    """Threads with unanswered requests."""
    most_in_flight: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""

    def draw(self, request: "ChatCall", failure: str, *names: str) -> bool:
        """Draw whether a request fails in this way, according to the failure's rate."""
        drawn = request.random(self.seed, failure, *names).random() < self.rates[failure]
        if drawn:
            with self.lock:
                self.failures[failure] += 1
        return drawn


@dataclass(frozen=True)
class ChatCall:
    """A parsed request."""

    prompt: str
    user: str
    digest: str

    def random(self, seed: int, *names: str) -> random.Random:
        return random.Random("\0".join((str(seed), self.digest, *names)))

    def part(self, tag: str) -> str:
        """Return the content of a tag."""
        result = re.search(rf"<{tag}[^>]*>\n(.*)\n</{tag}>", self.user, re.DOTALL)
        assert result, (tag, self.user)
        return result[1]

    def line(self, name: str) -> str:
        result = re.search(rf"^{name}: (.*)$", self.user, re.MULTILINE)
        assert result, (name, self.user)
        return result[1]


def plain(text: str) -> str:
    return " ".join(text.split())


def bare(text: str) -> str:
    return "".join(text.split())


class Answers:
    """Human questions and answers as a language model's answers, with a method per prompt."""

    def __init__(self, state: LanguageModelServer) -> None:
        self.state = state

    def answer(self, call: ChatCall) -> Any:
        return getattr(self, call.prompt)(call)

    def ask_positional(self, call: ChatCall) -> Any:
        document = self.state.truth.by_text[call.part("document")]
        third = {"first": 0, "middle": 1, "last": 2}[
            call.line("Part that the questions are about").split()[1]
        ]
        return self._questions(call, document, [third])

    def ask_chunk(self, call: ChatCall) -> Any:
        chunk = call.part("excerpt")
        document = next(
            document for document in self.state.truth.documents if chunk in document.text
        )
        inside = self._inside(document, chunk)[: self._limit(call)]
        return {"questions": [self._as_question(document, question) for question in inside]}

    def _inside(self, document: HumanDocument, part: str) -> list[HumanQuestion]:
        """List the questions whose answers are in a part of a document."""
        place = document.text.find(part)
        return [
            asked
            for asked in document.questions
            if place <= asked.start and asked.end <= place + len(part)
        ]

    def summarize(self, call: ChatCall) -> Any:
        return {"summary": " ".join(call.part("document").split()[:60])}

    def choose_persona(self, call: ChatCall) -> Any:
        return {
            "persona": call.random(0).randint(1, 5),
            "difficulty": "university",
            "query_length": "medium",
        }

    def ask_persona(self, call: ChatCall) -> Any:
        document = self.state.truth.by_text[call.part("document")]
        inside = self._inside(document, call.part("segment"))
        if not inside:
            return {"query": "", "answer": "", "reasoning": "Nothing is asked."}
        choice = call.random(0).choice(inside)
        return {
            "query": choice.text,
            "answer": document.text[choice.start : choice.end],
            "reasoning": "The segment says so.",
        }

    def _limit(self, call: ChatCall) -> int:
        return int(re.findall(r"\d+", call.line("Number of questions"))[0])

    def _as_question(
        self, document: HumanDocument, first: HumanQuestion, text: str | None = None
    ) -> dict[str, str]:
        return {
            "question": text or first.text,
            "answer": document.text[first.start : first.end],
            "type": "other",
        }

    def _questions(self, call: ChatCall, document: HumanDocument, thirds: list[int]) -> Any:
        state, chosen = self.state, call.random(self.state.seed, "questions")
        inside = [question for question in document.questions if document.third(question) in thirds]
        values = []
        for choice in chosen.sample(inside, min(self._limit(call), len(inside))):
            text = choice.text
            if state.draw(call, "names the position", choice.id):
                text = f"At the beginning of the text: {text}"
            elif state.draw(call, "refers to the text", choice.id):
                text = f"According to the text: {text}"
            elif choice.in_other_language and state.draw(call, "another language", choice.id):
                text = choice.in_other_language
            elif state.draw(call, "unanswerable question", choice.id):
                other = chosen.choice(
                    [other for other in state.truth.documents if other.id != document.id]
                )
                values.append(self._as_question(other, chosen.choice(other.questions)))
                continue
            elif state.draw(call, "question about another third", choice.id):
                choice = chosen.choice(document.questions)
                text = choice.text
            values.append(self._as_question(document, choice, text))
            if state.draw(call, "duplicate", choice.id) and len(values) < self._limit(call):
                values.append(self._as_question(document, choice, text))
        return {"questions": values}

    def locate(self, call: ChatCall) -> Any:
        state = self.state
        lines = [
            re.fullmatch(r"\[(\d+)\] (.*)", line) for line in call.part("document").split("\n")
        ]
        sentences = [line[2] for line in lines if line]
        shown = bare("".join(sentences))
        result = state.truth.find(call.line("Question"))
        chosen = call.random(state.seed, "locate")
        if result is None or bare(result[0].text) != shown:
            if not state.draw(call, "evidence for the unanswerable"):
                return {"evidence": []}
            row = chosen.randrange(len(sentences))
            return {"evidence": [self._evidence(row + 1, sentences[row])]}
        document, question = result
        row, quote = self._quote(document, question, sentences)
        evidence = self._evidence(row + 1, quote)
        return {"evidence": self._spoil(call, evidence, sentences, chosen)}

    def _evidence(self, number: int, quote: str) -> dict[str, Any]:
        return {"first_sentence": number, "last_sentence": number, "quote": quote}

    def _quote(
        self, document: HumanDocument, question: HumanQuestion, sentences: list[str]
    ) -> tuple[int, str]:
        """Return the index of the sentence where an answer begins, and a quote: the answer with
        some words around it.
        """
        before, length = (
            len(bare(document.text[: question.start])),
            len(bare(document.text[question.start : question.end])),
        )
        for row, sentence in enumerate(sentences):
            places = [place for place, character in enumerate(sentence) if not character.isspace()]
            if before < len(places):
                start, end = places[before], places[min(before + length, len(places)) - 1] + 1
                left = " ".join(sentence[:start].split(" ")[-CONTEXT_WORDS - 1 :])
                right = " ".join(sentence[end:].split(" ")[: CONTEXT_WORDS + 1])
                # Limit the context in texts without spaces, but do not cut numbers.
                left = (
                    left
                    if len(left) <= LONGEST_CONTEXT
                    else re.sub(r"^[\d.,]+", "", left[-LONGEST_CONTEXT:])
                )
                right = (
                    right
                    if len(right) <= LONGEST_CONTEXT
                    else re.sub(r"[\d.,]+$", "", right[:LONGEST_CONTEXT])
                )
                return row, f"{left}{sentence[start:end]}{right}".strip()
            before -= len(places)
        raise AssertionError((question, sentences))

    def _spoil(
        self, call: ChatCall, evidence: dict[str, Any], sentences: list[str], chosen: random.Random
    ) -> list[dict]:
        state, quote = self.state, evidence["quote"]
        digits = re.search(r"\d", quote)
        if state.draw(call, "paraphrased quote"):
            return [
                evidence
                | {
                    "quote": " ".join(sorted(quote.split(), key=str.lower, reverse=True))
                    + " indeed"
                }
            ]
        if state.draw(call, "doubled quote"):
            other = chosen.randrange(len(sentences))
            return [evidence, self._evidence(other + 1, sentences[other])]
        if digits and state.draw(call, "changed number"):
            return [
                evidence | {"quote": quote.replace(digits[0], str((int(digits[0]) + 1) % 10), 1)}
            ]
        if state.draw(call, "changed negation"):
            words = quote.split()
            return [
                evidence
                | {"quote": " ".join([*words[: len(words) // 2], "not", *words[len(words) // 2 :]])}
            ]
        if state.draw(call, "answer from another part"):
            other = (evidence["first_sentence"] + len(sentences) // 2) % len(sentences)
            return [self._evidence(other + 1, sentences[other])]
        if state.draw(call, "wrong sentence number"):
            return [
                evidence
                | {"first_sentence": len(sentences) + 7, "last_sentence": len(sentences) + 7}
            ]
        return [evidence]

    def _answers(self, question: str, content: str) -> bool:
        """Return True if a text contains the answer with some characters before or after it."""
        result = self.state.truth.find(question)
        if result is None:
            return False
        text = plain(content)
        return any(
            plain(document.text[max(0, item.start - CONTEXT_CHARACTERS) : item.end]) in text
            or plain(document.text[item.start : item.end + CONTEXT_CHARACTERS]) in text
            for document, item in self.state.truth.by_question[plain(result[1].text)]
        )

    def relevance(self, call: ChatCall) -> Any:
        return {"relevance": self._grade(call, call.line("Question"), call.part("text"))}

    def _grade(self, call: ChatCall, question: str, text: str) -> int:
        chosen = call.random(self.state.seed, "grade")
        answers = self._answers(question, text) != self.state.draw(call, "wrong grade")
        return chosen.choice([4, 4, 4, 3]) if answers else chosen.choice([0, 1, 1, 2])

    def posq_relevance(self, call: ChatCall) -> int:
        passage = call.user.partition("Passage: ")[2].partition("\n\nWrite one")[0]
        return self._grade(call, call.line("Query"), passage)

    def posq_summarize(self, call: ChatCall) -> str:
        return self.summarize(call)["summary"]

    def posq_ask_chunk(self, call: ChatCall) -> list[dict[str, str]]:
        chunk = call.part("chunk")
        document = next(row for row in self.state.truth.documents if chunk in row.text)
        return [self._as_question(document, row) for row in self._inside(document, chunk)]

    def answerable(self, call: ChatCall) -> Any:
        answers = self._answers(call.line("Question"), call.part("text")) != self.state.draw(
            call, "wrong verdict"
        )
        return {
            "reasoning": "The text says so." if answers else "The text does not say.",
            "answer": "yes" if answers else "no",
        }

    def translate_sentences(self, call: ChatCall) -> Any:
        state = self.state
        assert state.translate
        numbered = re.findall(r"^\[(\d+)\] (.*)$", call.user, re.MULTILINE)
        values = [
            {"number": int(number), "text": state.translate(text)} for number, text in numbered
        ]
        if state.draw(call, "untranslated"):
            values = [{"number": int(number), "text": text} for number, text in numbered]
        if state.draw(call, "prefix"):
            values[0]["text"] = f"Here is the translation:\n\n{values[0]['text']}"
        return {"sentences": values[:-1] if state.draw(call, "missing sentence") else values}

    def rate_translation(self, call: ChatCall) -> Any:
        """Rate short translations as incomplete; other ratings are random."""
        assert call.part("translation")
        chosen = call.random(self.state.seed, "rating")
        ratings = {scale: chosen.choice([4, 5]) for scale in ("fluency", "accuracy", "style")}
        complete = 2 * len(call.part("translation")) > len(call.part("original"))
        return {"reasoning": "It reads well.", "completeness": 5 if complete else 2, **ratings}

    def other_words(self, call: ChatCall) -> Any:
        """Write the words of the sentence, each backward unless the failure is `same words`."""
        words = call.part("sentence").split()
        if self.state.draw(call, "refusal as question"):
            return {"question": REFUSAL}
        if self.state.draw(call, "same question"):
            return {"question": "Zzyzx?"}
        if self.state.draw(call, "another language"):
            return {"question": OTHER_LANGUAGE}
        return {
            "question": " ".join(
                words if self.state.draw(call, "same words") else [word[::-1] for word in words]
            )
        }

    def translate_question(self, call: ChatCall) -> Any:
        assert self.state.translate
        text = call.user.partition("\n\n")[2]
        translated = text if self.state.draw(call, "untranslated") else self.state.translate(text)
        return {
            "text": f"Translation: {translated}" if self.state.draw(call, "prefix") else translated
        }


DRAFT = 'First {"answer": "maybe"}, {"answer": "yes"} or {"answer": "no"}.'
#: Functions that turn an answer into a failure and its finish reason; the first match applies.
CHANGES: dict[str, Callable[[str], tuple[str, str]]] = {
    "refusal": lambda _: (REFUSAL, "stop"),
    "empty": lambda _: ("", "stop"),
    "cut thoughts": lambda _: (f"<think>\n{DRAFT}", "length"),
    "thoughts": lambda text: (f"<think>\n{DRAFT}\n</think>\n\n{text}", "stop"),
    "repeated text": lambda text: (f"{text}<|im_end|>\n" * 20, "length"),
    "trailing comma": lambda text: (f"{text[:-1]},\n{text[-1]}", "stop"),
    "other spelling": lambda text: (
        text.replace('"answer": "', '"Answer": " ').replace('"}', '."}'),
        "stop",
    ),
    "wrapper": lambda text: (f'{{"result": {text}}}', "stop"),
    "wrong fields": lambda _: ('{"result": "done"}', "stop"),
    "cut JSON": lambda text: (text[: len(text) * 2 // 3], "length"),
    "prose around JSON": lambda text: (
        f"Sure! Here is the JSON:\n```json\n{text}\n```\nLet me know if you need more.",
        "stop",
    ),
}


def write_answer(state: LanguageModelServer, call: ChatCall) -> tuple[str, str]:
    """Write an answer, possibly with a failure; return its text and finish reason."""
    answer = Answers(state).answer(call)
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    changes = (change for name, change in CHANGES.items() if state.draw(call, name))
    return next(changes, lambda text: (text, "stop"))(text)


def split_parts(state: LanguageModelServer, call: ChatCall, text: str) -> str | list[dict]:
    """Split a text into parts after a part with thoughts, as some servers do, at the rate of
    `parts`.
    """
    if not state.draw(call, "parts"):
        return text
    half = len(text) // 2
    thoughts = {"type": "thinking", "thinking": [{"type": "text", "text": '{"answer": "no"}'}]}
    return [thoughts, *({"type": "text", "text": part} for part in (text[:half], text[half:]))]


class ChatHandler(Handler):
    protocol_version = "HTTP/1.1"
    # Otherwise, a response waits for the client to acknowledge its headers.
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:  # noqa: N802
        state: LanguageModelServer = self.server.state
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with state.lock:
            state.in_flight.add(threading.get_ident())
            state.most_in_flight = max(state.most_in_flight, len(state.in_flight))
        try:
            self.respond(state, json.loads(body), hashlib.sha256(body).hexdigest())
        finally:
            self.end_flight()

    def end_flight(self) -> None:
        """Count this request as answered. This happens before the response is sent, since the
        client then sends its next request.
        """
        with self.server.state.lock:
            self.server.state.in_flight.discard(threading.get_ident())

    def respond(self, state: LanguageModelServer, request: dict[str, Any], digest: str) -> None:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        *first, user = (message["content"] for message in request["messages"])
        system = "".join(first)
        form = request.get("response_format", {}).get("json_schema", {})
        call = ChatCall(form.get("name") or guess_prompt(system or user), user, digest)
        with state.lock:
            state.seen[digest] += 1
            is_first = state.seen[digest] == 1
        if state.key is not None and given != state.key:
            return self.refuse(401, f"Incorrect API key provided: {given}")
        if state.status is not None:
            return self.refuse(state.status, "set by the test")
        if state.page is not None:
            return self.answer(200, state.page)
        if state.max_characters and len(user) > state.max_characters:
            return self.refuse(400, "This model's maximum context length is exceeded")
        if self.path != "/v1/chat/completions":
            return self.refuse(404, f"no such path {self.path}")
        if is_first and self.fail_once(state, call):
            return None
        time.sleep(state.seconds)
        text, finish = write_answer(state, call)
        usage = {"prompt_tokens": len(system + user) // 4, "completion_tokens": len(text) // 4}
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": split_parts(state, call, text)},
            "finish_reason": finish,
        }
        with state.lock:
            state.answered[self.headers.get("Idempotency-Key", digest)] += 1
            state.input_tokens += usage["prompt_tokens"]
            state.output_tokens += usage["completion_tokens"]
        model = state.snapshot or request["model"]
        content = {
            "id": "1",
            "object": "chat.completion",
            "model": model,
            "choices": [] if state.draw(call, "no choices") else [choice],
            "usage": usage,
        }
        return self.answer(200, content)

    def fail_once(self, state: LanguageModelServer, call: ChatCall) -> bool:
        if state.draw(call, "rate limit"):
            self.refuse(429, "slow down", {"retry-after-ms": "5"})
        elif state.draw(call, "server error"):
            self.refuse(500, "internal error", {"retry-after-ms": "5"})
        elif state.draw(call, "time-out"):
            time.sleep(1.5)
            self.close_connection = True
        elif state.draw(call, "dropped connection"):
            self.close_connection = True
            self.connection.close()
        else:
            return False
        return True

    def refuse(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        self.answer(status, {"error": {"message": message}}, headers)

    def answer(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        self.end_flight()
        try:
            super().answer(status, content, headers)
            self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError, ValueError):
            # The client was killed.
            self.close_connection = True


def guess_prompt(system: str) -> str:
    """Guess the prompt from the first message of a request without a schema."""
    beginnings = {
        "You find the evidence": "locate",
        "You judge how": "relevance",
        "You test reading": "answerable",
        "Restate a document": "posq_summarize",
        "Write frequently asked": "posq_ask_chunk",
        "How relevant is": "posq_relevance",
    }
    return next(
        (name for start, name in beginnings.items() if system.startswith(start)), "ask_positional"
    )


@contextmanager
def serve_language_model(truth: Truth, **settings: Any) -> Iterator[LanguageModelServer]:
    """Run a server on a free port of this machine."""
    state = LanguageModelServer(truth, **settings)
    with serve(ChatHandler, state):
        yield state
