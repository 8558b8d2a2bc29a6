"""What `posir build` adds to the time of the language model's server: 500 documents, 5,000 calls of 50 ms, 32 in flight.

The same calls by the bare `openai` client, in as many threads, are the measure on a machine that does other work, too.

Usage: python benchmarks/build_overhead.py [--documents 500] [--calls 5000] [--milliseconds 50]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

IN_FLIGHT = 32


def serve(port: multiprocessing.Queue[int], milliseconds: float) -> None:
    """Answer every request after a fixed time with a grade; an asyncio server, which costs next to nothing."""
    import asyncio

    content = json.dumps({"relevance": 4})
    body = json.dumps(
        {
            "choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 10},
        }
    ).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.split(b":")[1]))
                await asyncio.sleep(milliseconds / 1000)
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def measure(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds and the seconds of this process's CPU time that a function takes."""
    started, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - cpu


def main() -> None:
    """Print the time of the calls beside that of the server and of the bare client, and the peak memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--milliseconds", type=float, default=50)
    options = parser.parse_args()
    port: multiprocessing.Queue[int] = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(port, options.milliseconds), daemon=True)
    server.start()
    address = f"http://127.0.0.1:{port.get()}/v1"

    from posir_build.construction.call_log import CallLog
    from posir_build.construction.language_model import LoggedLanguageModel, map_in_threads
    from posir_build.construction.settings import LanguageModelSettings
    from posir_build.construction.verify import RELEVANCE
    from posir_tasks.models.connection import openai

    texts = [f"Document {number}. " + "It has many words in its sentences. " * 200 for number in range(options.documents)]
    values = [{"question": f"What is number {row}?", "text": texts[row % len(texts)]} for row in range(options.calls)]
    settings = LanguageModelSettings.model_validate({"model": "none", "endpoints": [address], "in_flight": IN_FLIGHT})
    client = openai.OpenAI(api_key="none", base_url=address)

    def call(one: dict[str, str]) -> object:
        return client.chat.completions.create(**RELEVANCE.build_request(one, 0, settings).body())

    with tempfile.TemporaryDirectory() as folder:
        log = CallLog(Path(folder) / "calls.sqlite")
        model = LoggedLanguageModel(settings, log)
        build = measure(lambda: model.ask(RELEVANCE, values, "Benchmark"))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        assert log.usage()[("none", RELEVANCE.id)].calls == options.calls
        again = measure(lambda: model.ask(RELEVANCE, values, "Benchmark"))
    bare = measure(lambda: map_in_threads(call, values, IN_FLIGHT))
    server.terminate()
    needed = options.calls * options.milliseconds / 1000 / IN_FLIGHT
    print(f"{options.calls:,} calls, {IN_FLIGHT} in flight; load of the machine {os.getloadavg()[0]:.1f}")
    print(f"time of the server: {needed:.1f} s")
    for name, (seconds, cpu) in (("posir build", build), ("bare client", bare)):
        print(f"{name}: {seconds:.1f} s ({seconds / needed - 1:+.0%}), CPU {cpu:.1f} s")
    print(f"posir build to bare client: {build[0] / bare[0]:.2f}, CPU {build[1] / bare[1]:.2f}")
    print(f"all from the log: {again[0]:.1f} s; peak memory {memory:.2f} GB")


if __name__ == "__main__":
    main()
