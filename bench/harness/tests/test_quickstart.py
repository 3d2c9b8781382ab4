"""What the line of JSON of bench/quickstart says of its aims."""

import unittest

from harness import measure
from quickstart import benchmark, table


def compared(start, end, half=0.05):
    gain = end - start
    return {"a": start, "b": end, "difference": {"estimate": gain, "low": gain - half, "high": gain + half}}


def verdict(measure="em", trained=0.5, control=0.1, sampled=0.5):
    def detail(end):
        found = {"gain": compared(0.1, end), "control_gain": compared(0.1, control), "over_control": compared(control, end)}
        return {part: {"metrics": {measure: value, "searches": compared(1, 1)}} for part, value in found.items()}

    greedy = detail(trained)
    gains = {part: greedy[part]["metrics"][measure]["difference"] for part in ("gain", "control_gain")}
    ends = {name: [gains[part]["low"], gains[part]["high"]] for name, part in
            (("gain_interval", "gain"), ("control_interval", "control_gain"))}
    return {"seed": 1, "start": 0.1, "trained": trained, "gain": gains["gain"]["estimate"], "minutes": 2.0,
            "control_gain": gains["control_gain"]["estimate"], "greedy": greedy, "sampled": detail(sampled)} | ends


class Quickstart(unittest.TestCase):
    def held(self, peak_kb=10**6, **changes):
        return table.held([table.figures(verdict(**changes), peak_kb)])

    def test_the_measure_is_that_of_the_episodes(self):
        for measure in ("em", "ndcg"):
            row = table.figures(verdict(measure), 0)
            self.assertAlmostEqual(row["sampled/gain"]["b"], 0.5)

    def test_the_benchmark_declares_what_the_line_has(self):
        seen = {}
        for job in benchmark.JOBS:
            made = verdict("ndcg" if job == "query-writer" else "em")
            made["greedy"]["baselines"] = made["sampled"]["baselines"] = [{"name": benchmark.KEYWORDS, "seeds": [{"score": 0.9}]}]
            row = table.figures(made, 2**20)
            read = benchmark.read([{"figures": {str(seed): row for seed in table.SEEDS}}])
            seen |= {f"{job}/{name}": value for name, value in read.items()}
        figures = measure.figures(benchmark.BENCHMARK, seen)
        self.assertEqual(figures["query-writer/2/greedy/script-keywords"], 0.9)
        self.assertAlmostEqual(figures["search-r1/least low end of the gain"], 0.35)
        self.assertEqual(figures["code-search/most memory"], 1.0)

    def test_every_aim_can_fail(self):
        self.assertTrue(self.held())
        for changes in ({"trained": 0.25}, {"control": 0.48}, {"sampled": 0.12}, {"peak_kb": 5 * 1024**2}):
            self.assertFalse(self.held(**changes), changes)
        slow = table.figures(verdict() | {"minutes": 16}, 0)
        self.assertFalse(table.held([slow]))
        self.assertFalse(table.held([]))
