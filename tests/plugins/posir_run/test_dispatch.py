"""Dispatch of jobs to fake workers, some of which crash."""

import random
from collections import Counter
from concurrent.futures import Future
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_run.jobs import MAX_ATTEMPTS, Dispatcher, EvaluationJob, JobOutcome
from posir_tasks.base.errors import PosirError
from posir_tasks.models.references import ModelReference


def make_job(model, task, subset, corpus):
    return EvaluationJob(ModelReference(model), task, subset, corpus)


TASKS = [(task, subset) for task in ("English", "German") for subset in ("game", "sports")]
JOBS = [
    make_job(model, task, subset, f"{task}/{subset}") for model in "ab" for task, subset in TASKS
]


class FakeEngine:
    """An engine whose jobs complete when the dispatcher polls: all jobs or, with a seed, a random
    subset.
    """

    def __init__(
        self, locations=("one", "two"), seed=None, *, unusable=(), outcome=lambda _: JobOutcome()
    ):
        self.available = list(locations)
        self.random = random.Random(seed) if seed is not None else None
        self.unusable, self.outcome = unusable, outcome
        self.unfinished = []
        self.submitted = []
        self.running = []
        self.closed, self.started = False, 0

    def list_locations(self):
        count = len(self.unfinished)
        if self.random:
            self.random.shuffle(self.unfinished)
            count = self.random.randint(0, count)
        for finish in [self.unfinished.pop(0) for _ in range(count)]:
            finish()
        return self.available

    def start(self, location):
        self.started += 1
        return FakeWorker(self, location)

    def close(self):
        assert not self.running
        self.closed = True


class FakeWorker:
    def __init__(self, engine, location):
        self.engine, self.location = engine, location
        engine.running.append(self)
        self.started = self.complete_later(
            lambda: OSError(f"no memory on {location}") if location in engine.unusable else None
        )

    def submit(self, job):
        self.engine.submitted.append((self.location, job))
        return self.complete_later(lambda: self.engine.outcome(job))

    def complete_later(self, compute):
        """Return a future for the result of `compute`. Exceptions crash the worker."""
        assert self in self.engine.running
        future = Future()

        def finish():
            result = compute()
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.engine.unfinished.append(finish)
        return future

    def stop(self):
        self.engine.running.remove(self)


def run(jobs, engine):
    outcomes = list(Dispatcher(jobs, engine).run())
    assert engine.closed
    return outcomes


@given(
    st.integers(0, 1_000),
    st.sets(st.sampled_from("pqrs"), min_size=1),
    st.dictionaries(st.sampled_from(JOBS), st.integers(1, MAX_ATTEMPTS)),
    st.sets(st.sampled_from(JOBS)),
)
def test_every_job_has_one_outcome_despite_crashes(seed, locations, crashes, failing):
    crashes_left = Counter(crashes)

    def outcome(job):
        crashes_left[job] -= 1
        if crashes_left[job] >= 0:
            return OSError("killed")
        return JobOutcome(
            failure="bad data" if job in failing else "",
            restart_worker=job in failing and seed % 2 == 0,
        )

    engine = FakeEngine(sorted(locations), seed, outcome=outcome)
    outcomes = run(JOBS, engine)
    assert Counter(job for job, _ in outcomes) == Counter(JOBS)
    failed_jobs = {job for job, count in crashes.items() if count == MAX_ATTEMPTS}
    assert {job for job, outcome in outcomes if outcome.failure} == failing | failed_jobs
    assert all("crashed" in outcome.failure for job, outcome in outcomes if job in failed_jobs)
    assert Counter(job for _, job in engine.submitted) == Counter(
        {job: 1 + crashes.get(job, 0) - (job in failed_jobs) for job in JOBS}
    )


@given(st.sampled_from(["p", "pq", "pqr", "pqrs"]), st.integers(0, 99))
def test_a_worker_prefers_jobs_with_its_model(locations, seed):
    jobs = [
        make_job(model, "English", str(number), str(number))
        for number in range(20)
        for model in "ab"
    ]
    engine = FakeEngine(locations, seed)
    run(jobs, engine)
    for location in locations:
        models = [
            job.model.name
            for worker_location, job in engine.submitted
            if worker_location == location
        ]
        # At the end, a worker without jobs for its model takes jobs for the other model.
        assert sum(before != after for before, after in pairwise(models)) <= 1


def test_workers_start_with_different_models_then_corpora():
    jobs = [
        make_job(m, t, s, s)
        for m in "ab"
        for s in ("game", "news", "sports")
        for t in ("English", "German")
    ]
    engine = FakeEngine(("p", "q", "r", "s"))
    run(jobs, engine)
    started_jobs = [(job.model.name, job.corpus) for _, job in engine.submitted]
    assert Counter(model for model, _ in started_jobs[:4]) == {"a": 2, "b": 2}
    assert (len(set(started_jobs[:4])), started_jobs[4:8]) == (4, started_jobs[:4])


def test_a_worker_keeps_its_corpus_and_free_workers_share_one():
    jobs = [
        make_job(m, t, s, s)
        for m in "ab"
        for t in ("English", "German")
        for s in ("game", "sports")
    ]
    engine = FakeEngine(("one",))
    run(jobs, engine)
    started_jobs = [(job.model.name, job.corpus) for _, job in engine.submitted]
    assert started_jobs == [
        (model, corpus) for model in "ab" for corpus in ("game", "sports") for _ in range(2)
    ]
    engine = FakeEngine()
    run([make_job("a", task, "game", "game") for task in ("English", "German")], engine)
    assert {location for location, _ in engine.submitted} == {"one", "two"}


def test_a_worker_is_restarted_only_if_its_outcome_requests_it():
    for restart, workers in ((True, len(JOBS)), (False, 1)):
        engine = FakeEngine(
            ("one",),
            outcome=lambda _, restart=restart: JobOutcome(failure="reason", restart_worker=restart),
        )
        assert len(run(JOBS, engine)) == len(JOBS)
        assert engine.started == workers


def test_a_location_is_not_used_after_a_worker_fails_to_start():
    engine = FakeEngine(unusable=("one",))
    run(JOBS, engine)
    assert {location for location, _ in engine.submitted} == {"two"}
    engine = FakeEngine(unusable=("one", "two"))
    with pytest.raises(PosirError, match="OSError: no memory on"):
        run(JOBS, engine)
    assert engine.closed


def test_new_machines_are_used_and_all_workers_are_stopped():
    engine = FakeEngine(("one",))
    outcomes = Dispatcher(JOBS, engine).run()
    next(outcomes)
    engine.available = [f"location {number}" for number in range(100)]
    next(outcomes)
    assert len(engine.running) > 1
    assert max(len(engine.running) for _ in outcomes) <= len(JOBS)
    # Closing the outcomes stops the workers.
    engine = FakeEngine()
    outcomes = Dispatcher(JOBS, engine).run()
    next(outcomes)
    assert engine.running
    outcomes.close()
    assert engine.closed
