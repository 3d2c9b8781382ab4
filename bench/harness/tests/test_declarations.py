"""Every declared aim and equality of every benchmark can fail, and fails for each figure and observation that it reads."""

import unittest

from harness import measure
from harness.declare import ROOT, BenchError, load, names

SCALES = [10.0**power for power in range(-12, 13) if power]


class Reading(dict):
    """A round's figures that remembers which were read."""

    def __init__(self, found):
        super().__init__(found)
        self.read = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


def observed(benchmark, seen, name):
    """The observations that decide a figure."""
    figure = next(figure for figure in benchmark.figures if figure.name == name)
    if figure.of is None:
        return {name}
    reading = Reading(measure.figures(benchmark, seen))
    figure.of(reading)
    return set().union(*(observed(benchmark, seen, read) for read in reading.read))


def held(benchmark, aim, seen):
    found = measure.result("test", benchmark, {}, [measure.figures(benchmark, seen)])
    judged = found["aims"][list(benchmark.aims).index(aim)]
    # One aim that is missed is enough for the whole.
    assert found["held"] is all(one["held"] for one in found["aims"])
    return judged["held"]


def holding(benchmark, aim, inputs):
    """Observations with which an aim holds: each is moved to where the figure is better, or not worse than the other way."""
    seen = {figure.name: 1.0 for figure in benchmark.figures if figure.of is None}
    value = lambda seen: measure.figures(benchmark, seen)[aim.figure] * (1 if aim.comparison == ">=" else -1)
    for _ in range(12):
        if held(benchmark, aim, seen):
            return seen
        for name in sorted(inputs):
            up, down = seen | {name: seen[name] * 10}, seen | {name: seen[name] / 10}
            seen = up if value(up) >= value(down) else down
    raise AssertionError(f"nothing makes “{aim.about}” hold")


def declared():
    """Every benchmark, those that grow at their usual sizes and at the largest alone."""
    for name in names():
        benchmark = load(name)
        yield name, benchmark
        if benchmark.part:
            largest = load(name, sizes="all").parameters["sizes"][-1:]
            yield f"{name}, {largest[0]}", load(name, sizes=largest)


class Declarations(unittest.TestCase):
    def test_there_are_benchmarks(self):
        self.assertLess(5, len(names()))

    def test_each_figure_that_an_aim_reads_turns_it_false(self):
        for name, benchmark in declared():
            ones = {figure.name: 1.0 for figure in benchmark.figures if figure.of is None}
            for aim in benchmark.aims:
                inputs = observed(benchmark, ones, aim.figure)
                self.assertTrue(inputs)
                seen = holding(benchmark, aim, inputs)
                for mutated in inputs:
                    with self.subTest(benchmark=name, aim=aim.about, mutated=mutated):
                        turned = [held(benchmark, aim, seen | {mutated: seen[mutated] * scale}) for scale in SCALES]
                        self.assertIn(False, turned)

    def test_each_observation_of_an_equality_breaks_it(self):
        for name, benchmark in declared():
            for equality in benchmark.equalities:
                value = 12.5 if equality.value is None else equality.value
                seen = {observation: value for observation in equality.observed}
                self.assertEqual(equality.differing(seen), "")
                for mutated in equality.observed:
                    with self.subTest(benchmark=name, equality=equality.about, mutated=mutated):
                        self.assertIn(mutated, equality.differing(seen | {mutated: value + 0.5}))
                        alone = {kept: value for kept in seen if kept != mutated}
                        with self.assertRaisesRegex(BenchError, "no side gave"):
                            measure.check(benchmark, alone)

    def test_a_missing_figure_ends_the_benchmark(self):
        for _, benchmark in declared():
            seen = {figure.name: 1.0 for figure in benchmark.figures if figure.of is None}
            for figure in seen:
                with self.assertRaisesRegex(BenchError, "no side gave the declared figure"):
                    measure.figures(benchmark, {kept: value for kept, value in seen.items() if kept != figure})

    def test_peers_have_exact_versions(self):
        for name in names():
            for peer, version in load(name).versions().items():
                self.assertRegex(version, r"^\d+(\.\d+)+$", f"{name}: {peer}")

    def test_environments_are_compared_with_each_of_their_peers(self):
        benchmark = load("environment")
        peers = benchmark.sides.__globals__["PEERS"]
        self.assertEqual(list(peers), ["skyrl-gym", "verifiers"])
        for name, (script, *_) in peers.items():
            self.assertTrue((ROOT / "bench/environment" / script).exists())
            self.assertLessEqual({f"http over {name}", f"websocket over {name}"}, {aim.figure for aim in benchmark.aims})
            self.assertIn([f"{name}/paid", f"{name}/expected"], [list(equality.observed) for equality in benchmark.equalities])


if __name__ == "__main__":
    unittest.main()
