"""Units over made workers: who gets which, and what becomes of those whose worker dies."""

import random
from collections import Counter
from concurrent.futures import Future
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_run.dispatch import ATTEMPTS, Dispatch
from posir_run.jobs import Done, EvaluationJob, Failed
from posir_tasks.errors import PosirError
from posir_tasks.models import ModelReference

UNITS = [
    EvaluationJob(ModelReference(model), task, subset, f"{task}/{subset}")
    for model in ("a", "b")
    for task in ("English", "German")
    for subset in ("game", "sports")
]


def job(model, task, subset, corpus):
    return EvaluationJob(ModelReference(model), task, subset, corpus)


class MadeEngine:
    """Workers whose work is done whenever the dispatch looks around: a drawn part of it, or without a seed all of it."""

    def __init__(self, places=("one", "two"), seed=None, *, without=(), outcome=lambda unit: Done(unit, None, {})):
        self.now = list(places)
        self.random = random.Random(seed) if seed is not None else None
        self.without, self.outcome = without, outcome
        self.open = []
        self.given = []
        self.running = []
        self.closed = False

    def places(self):
        count = len(self.open)
        if self.random:
            self.random.shuffle(self.open)
            count = self.random.randint(0, count)
        for finish in [self.open.pop(0) for _ in range(count)]:
            finish()
        return self.now

    def start(self, place):
        self.running.append(MadeWorker(self, place))
        return self.running[-1]

    def close(self):
        assert not self.running
        self.closed = True


class MadeWorker:
    def __init__(self, engine, place):
        self.engine, self.place, self.last = engine, place, Future()

    def ready(self):
        return self.later(lambda: OSError(f"no room in {self.place}") if self.place in self.engine.without else None)

    def submit(self, unit):
        self.engine.given.append((self.place, unit))
        return self.later(lambda: self.engine.outcome(unit))

    def later(self, work):
        """Return a future of what `work` returns; an exception is one that the worker dies of."""
        assert self in self.engine.running
        future = self.last = Future()

        def finish():
            result = work()
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.engine.open.append(finish)
        return future

    def stop(self):
        self.engine.running.remove(self)


def run(units, engine):
    outcomes = list(Dispatch(units, engine).outcomes())
    assert engine.closed
    return outcomes


@given(
    st.integers(0, 1_000),
    st.sets(st.sampled_from("pqrs"), min_size=1),
    st.dictionaries(st.sampled_from(UNITS), st.integers(1, ATTEMPTS)),
    st.sets(st.sampled_from(UNITS)),
)
def test_every_unit_has_one_outcome_whoever_dies_of_it(seed, places, deaths, failing):
    left = Counter(deaths)

    def outcome(unit):
        left[unit] -= 1
        if left[unit] >= 0:
            return OSError("killed")
        return Failed(unit, "bad data", fresh=seed % 2 == 0) if unit in failing else Done(unit, None, {})

    engine = MadeEngine(sorted(places), seed, outcome=outcome)
    outcomes = run(UNITS, engine)
    assert Counter(one.unit for one in outcomes) == Counter(UNITS)
    lost = {unit for unit, count in deaths.items() if count == ATTEMPTS}
    assert {one.unit for one in outcomes if isinstance(one, Failed)} == failing | lost
    assert all("died" in one.why for one in outcomes if one.unit in lost)
    assert Counter(unit for _, unit in engine.given) == Counter(
        {unit: 1 + deaths.get(unit, 0) - (unit in lost) for unit in UNITS}
    )


@pytest.mark.parametrize("places", [("p",), ("p", "q"), ("p", "q", "r"), ("p", "q", "r", "s")])
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_worker_keeps_to_its_model(places, seed):
    units = [job(model, "English", str(number), str(number)) for number in range(20) for model in "ab"]
    engine = MadeEngine(places, seed)
    run(units, engine)
    for place in places:
        models = [unit.model.name for where, unit in engine.given if where == place]
        # A worker without units of its own model helps with the other at the end.
        assert sum(before != after for before, after in pairwise(models)) <= 1


def test_workers_begin_with_different_models_and_then_with_different_corpora():
    units = [job(m, t, s, s) for m in "ab" for s in ("game", "news", "sports") for t in ("English", "German")]
    engine = MadeEngine(("p", "q", "r", "s"))
    run(units, engine)
    first = [unit for _, unit in engine.given[:4]]
    assert Counter(unit.model.name for unit in first) == {"a": 2, "b": 2}
    assert len({(unit.model, unit.corpus) for unit in first}) == 4
    second = [unit for _, unit in engine.given[4:8]]
    assert [(unit.model, unit.corpus) for unit in second] == [(unit.model, unit.corpus) for unit in first]


def test_one_worker_alone_does_a_corpus_at_a_time():
    units = [job(m, t, s, s) for m in "ab" for t in ("English", "German") for s in ("game", "sports")]
    engine = MadeEngine(("one",))
    run(units, engine)
    assert [(unit.model.name, unit.corpus) for _, unit in engine.given] == [
        (model, corpus) for model in "ab" for corpus in ("game", "sports") for _ in range(2)
    ]


def test_more_workers_than_corpora_share_one():
    units = [job("a", task, "game", "game") for task in ("English", "German")]
    engine = MadeEngine()
    run(units, engine)
    assert {place for place, _ in engine.given} == {"one", "two"}


def test_a_worker_that_a_unit_has_spoiled_is_replaced_and_one_that_met_bad_data_is_not():
    for fresh, workers in ((True, len(UNITS)), (False, 1)):
        engine = MadeEngine(("one",), outcome=lambda unit, fresh=fresh: Failed(unit, "why", fresh=fresh))
        started = []
        start = engine.start
        engine.start = lambda place, start=start, started=started: started.append(place) or start(place)
        assert len(run(UNITS, engine)) == len(UNITS)
        assert len(started) == workers


def test_a_place_where_no_worker_starts_is_left_out():
    engine = MadeEngine(without=("one",))
    run(UNITS, engine)
    assert {place for place, _ in engine.given} == {"two"}


def test_no_worker_anywhere_is_an_error_that_says_why():
    engine = MadeEngine(without=("one", "two"))
    with pytest.raises(PosirError, match=r"no worker can be started.*OSError: no room in"):
        run(UNITS, engine)
    assert engine.closed


def test_a_machine_that_joins_is_used_and_there_are_no_more_workers_than_units():
    engine = MadeEngine(("one",))
    outcomes = Dispatch(UNITS, engine).outcomes()
    next(outcomes)
    engine.now = [f"place {number}" for number in range(100)]
    most = max(len(engine.running) for _ in outcomes)
    assert 1 < most <= len(UNITS)


def test_who_stops_asking_stops_the_workers():
    engine = MadeEngine()
    outcomes = Dispatch(UNITS, engine).outcomes()
    next(outcomes)
    assert engine.running
    outcomes.close()
    assert engine.closed
