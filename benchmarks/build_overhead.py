"""Measure the time that `posir build` adds to the time of the language model server: 500 documents,
5,000 calls of 50 ms, 32 in flight.

A build from documents to a dataset makes 500 Ask calls, 1,500 Locate calls and 3,000 Verify calls.
It is compared with the minimum time of the server, and with clients that only send 5,000 requests
of the same length: a raw HTTP client (`http.client`) in 32 threads, and posir's client in one event
loop, as in a build. Server and clients share the processor.

Usage: python benchmarks/build_overhead.py [--documents 500] [--milliseconds 50]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

IN_FLIGHT = 32
#: Questions per document. Each takes one Locate call and two Verify calls.
QUESTIONS = 3
#: Sentences per document, about 1,700 tokens.
SENTENCES = 120
KEEPER = re.compile(r"The keeper of lighthouse (\d+) is called (\w+)\.")
NUMBERED = re.compile(r"\[(\d+)\] The keeper of lighthouse (\d+) ")


def write_document(number: int) -> str:
    """Write a text with a different fact in each sentence."""
    rng = random.Random(number)
    names = ["".join(rng.choices("aeioubdklmnrst", k=7)).title() for _ in range(SENTENCES)]
    return " ".join(
        f"The keeper of lighthouse {number * SENTENCES + row} is called {name}."
        for row, name in enumerate(names, 10**6)
    )


def answer(prompt: str, user: str) -> dict[str, Any]:
    """Return the correct answer to a prompt of the build."""
    if prompt == "ask_positional":
        keepers = KEEPER.findall(user)
        chosen = [keepers[row * len(keepers) // QUESTIONS] for row in range(QUESTIONS)]
        questions = [
            {
                "question": f"What is the keeper of lighthouse {number} called?",
                "answer": name,
                "type": "what",
            }
            for number, name in chosen
        ]
        return {"questions": questions}
    lighthouse = re.findall(r"keeper of lighthouse (\d+) called\?", user)[0]
    if prompt == "locate":
        row = next(int(row) for row, number in NUMBERED.findall(user) if number == lighthouse)
        quote = next(match[0] for match in KEEPER.finditer(user) if match[1] == lighthouse)
        return {"evidence": [{"first_sentence": row, "last_sentence": row, "quote": quote}]}
    return {"relevance": 4 if f"lighthouse {lighthouse} is" in user else 0}


def serve(port: multiprocessing.Queue[int], milliseconds: float) -> None:
    """Answer each request after a fixed time. The asyncio server needs little CPU time."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                start = time.perf_counter()
                length = next(
                    line
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length:")
                )
                request = json.loads(await reader.readexactly(int(length.split(b":")[1])))
                content = json.dumps(
                    answer(
                        request["response_format"]["json_schema"]["name"],
                        request["messages"][1]["content"],
                    )
                )
                choice = {
                    "message": {"role": "assistant", "content": content},
                    "finish_reason": "stop",
                }
                usage = {"prompt_tokens": 1000, "completion_tokens": 10}
                body = json.dumps({"choices": [choice], "usage": usage}).encode()
                await asyncio.sleep(milliseconds / 1000 - (time.perf_counter() - start))
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
                    b"%d\r\n\r\n" % len(body) + body
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=2**20)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def measure(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall time and the CPU time of this process while a function runs, in seconds."""
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - cpu


def send_all(call: Callable[[Any], object], requests: list[Any]) -> None:
    """Send requests from `IN_FLIGHT` threads."""
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        list(pool.map(call, requests))


def build_raw_client(port: int) -> Callable[[dict[str, Any]], object]:
    """Build a function that sends a request. Each thread keeps a connection open."""
    local = threading.local()

    def call(body: dict[str, Any]) -> object:
        if not hasattr(local, "connection"):
            local.connection = HTTPConnection("127.0.0.1", port)
        local.connection.request(
            "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        return local.connection.getresponse().read()

    return call


async def send_asynchronously(address: str, bodies: Sequence[dict[str, Any]]) -> None:
    """Send requests from one event loop, as a build does, and discard the responses."""
    from posir_tasks.models.connection import Connection

    connection = Connection(address, retries=0)
    pending = iter(bodies)

    async def send_next() -> None:
        for body in pending:
            await connection.send_async(f"{address}/chat/completions", body)

    await asyncio.gather(*(send_next() for _ in range(IN_FLIGHT)))


def main() -> None:
    """Print the time of a build relative to the server and the raw client, and the peak memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--milliseconds", type=float, default=50)
    options = parser.parse_args()
    ports: multiprocessing.Queue[int] = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(ports, options.milliseconds), daemon=True)
    server.start()
    port = ports.get()
    address = f"http://127.0.0.1:{port}/v1"

    from posir_build.pipeline import BuildContext, run_stages, write_results
    from posir_build.settings import STAGE_NAMES, BuildSettings
    from posir_build.verify import RELEVANCE
    from posir_tasks.base.settings_file import load_settings, read_overrides
    from posir_tasks.models.connection import submit

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = [write_document(number) for number in range(options.documents)]
        (folder / "texts.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
        fields = (
            f"documents={folder / 'texts.jsonl'}",
            "language=eng-Latn",
            "domain=lighthouses",
            f"output={folder / 'data'}",
            f"work={folder / 'work'}",
            "llm.model=none",
            f"llm.endpoints=[{address}]",
            f"llm.in_flight={IN_FLIGHT}",
            "sample.lengths=any",
            "ask.draws=1",
            f"ask.questions={QUESTIONS}",
            "verify.leave_out=false",
        )
        settings = load_settings(BuildSettings, None, read_overrides(fields))
        calls = options.documents * (1 + 3 * QUESTIONS)
        question = "What is the keeper of lighthouse 1 called?"
        bodies = [
            RELEVANCE.build_request(
                {"question": question, "text": texts[row % len(texts)]}, 0, settings.llm
            ).body
            for row in range(calls)
        ]
        raw_times = measure(lambda: send_all(build_raw_client(port), bodies))
        async_times = measure(lambda: submit(send_asynchronously(address, bodies)).result())
        context = BuildContext(settings)
        build_times = measure(lambda: write_results(context, run_stages(context, STAGE_NAMES[-1])))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        assert sum(usage.calls for usage in context.log.load_usage().values()) == calls
    server.terminate()
    needed = calls * options.milliseconds / 1000 / IN_FLIGHT
    print(
        f"{calls:,} calls, {IN_FLIGHT} in flight; machine load {os.getloadavg()[0]:.1f}; "
        f"peak memory {memory:.2f} GB"
    )
    print(f"minimum of the server: {needed:.1f} s")
    times_by_client = {
        "raw client": raw_times,
        "client of a build": async_times,
        "posir build": build_times,
    }
    for label, (seconds, cpu) in times_by_client.items():
        to_server = f"{seconds / needed - 1:+.0%} relative to the server"
        to_client = f"{seconds / raw_times[0] - 1:+.0%} relative to the raw client"
        print(f"{label}: {seconds:.1f} s ({to_server}, {to_client}), CPU {cpu:.1f} s")


if __name__ == "__main__":
    main()
