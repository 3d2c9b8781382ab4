"""The harness itself: rounds with real programs as sides, what ends a benchmark, inputs that are kept, and the documents' blocks."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from harness import cli, measure, sides
from harness.declare import Aim, BenchError, Benchmark, Cell, Equality, Figure, Table
from harness.peers import Venv
from harness.workspace import Workspace

# A program that is driven: a line when it is ready, then what it is told.
DRIVEN = """
import json, sys
print(json.dumps({"opened": 3}), flush=True)
for line in sys.stdin:
    if line.strip() == "die":
        sys.exit("out of luck")
    print(json.dumps({"value": int(line)}), flush=True)
"""
# A benchmark in a tree of its own; `slow` and `word` come from the environment.
DECLARATION = """
import sys
from harness.declare import Aim, Benchmark, Cell, Equality, Figure, Table
from harness.sides import Command

def side(name, code):
    return Command(name, [sys.executable, "-c", code])

ONE = 'import json, os; print(json.dumps({"s": 1.0, "word": "same"}))'
OTHER = 'import json, os; print(json.dumps({"s": float(os.environ["SLOW"]), "word": os.environ["WORD"]}))'

BENCHMARK = Benchmark(
    title="Two programs",
    sides=lambda work: [[side("one", ONE), side("other", OTHER)]],
    parameters={"size": 10},
    rehearsal={"size": 1},
    figures=[
        Figure("one/s", "s", "lower"),
        Figure("other/s", "s", "lower"),
        Figure("ratio", "ratio", "higher", lambda found: found["other/s"] / found["one/s"]),
    ],
    aims=[Aim("ratio", ">=", 2, "times as fast")],
    equalities=[Equality("the same word", ["one/word", "other/word"])],
    tables=[Table(("", "s"), [["one", Cell("one/s", 1)], ["other", Cell("other/s", 1)]])],
)
"""


def python(code):
    return [sys.executable, "-c", code]


def declared(**changes):
    plain = {
        "title": "a test",
        "sides": lambda work: [],
        "parameters": {},
        "rehearsal": {},
        "figures": [Figure("a/x", "s", "lower"), Figure("double", "s", "lower", lambda found: 2 * found["a/x"])],
        "aims": [Aim("double", "<=", 4, "short")],
    }
    return Benchmark(**plain | changes)


class Declared(unittest.TestCase):
    def refused(self, words, **changes):
        with self.assertRaisesRegex(BenchError, words):
            declared(**changes)

    def test_what_could_not_fail_is_refused(self):
        self.refused("nothing could fail", aims=[])
        self.refused("no figure `y`", aims=[Aim("y", "<=", 1, "")])
        self.refused("not towards what is better", aims=[Aim("double", ">=", 1, "")])
        self.refused("is none of", aims=[Aim("double", "~", 1, "")])
        self.refused("nothing to compare", equalities=[Equality("alone", ["a/x"])])
        self.refused("at least 3", rounds=2)
        self.refused("declared twice: a/x", figures=[Figure("a/x", "s"), Figure("a/x", "s")], aims=[Aim("a/x", "<=", 1, "")])
        self.refused("for a table", tables=[Table(("h",), [[Cell("a/y")]])])
        self.refused("other parameters", rehearsal={"size": 1})

    def test_versions_are_exact(self):
        for loose in ("torch", "torch>=2", "torch==2.*"):
            with self.assertRaisesRegex(BenchError, "not an exact version"):
                Venv(loose)
        home = Path("/home")
        self.assertNotEqual(Venv("torch==2.1").folder(home), Venv("torch==2.2").folder(home))


class Sides(unittest.TestCase):
    def test_a_command_gives_its_last_line_and_its_peak(self):
        seen = sides.Command("a", python("print('noise'); print('{\"x\": 1}'); print('{\"x\": 2}')")).measure()
        self.assertEqual(seen["x"], 2)
        self.assertGreater(seen["peak_mib"], 1)

    def test_a_command_that_fails_or_says_nothing_ends_the_benchmark(self):
        with self.assertRaisesRegex(BenchError, "ended with 3:\nbroken"):
            code = "import sys; print('{\"x\": 1}'); print('broken', file=sys.stderr); sys.exit(3)"
            sides.Command("a", python(code)).measure()
        with self.assertRaisesRegex(BenchError, "ended with -9"):
            sides.Command("a", python("import os; os.kill(os.getpid(), 9)")).measure()
        with self.assertRaisesRegex(BenchError, "printed no JSON"):
            sides.Command("a", python("pass")).measure()

    def test_a_driven_program_is_asked_line_by_line(self):
        seen = sides.Driven("a", python(DRIVEN), {"one": "1", "two": "2"}, warm=["7"]).measure()
        self.assertEqual(seen, {"ready/opened": 3, "one/value": 1, "two/value": 2})

    def test_a_driven_program_that_ends_early_ends_the_benchmark(self):
        with self.assertRaisesRegex(BenchError, "out of luck"):
            sides.Driven("a", python(DRIVEN), {"one": "die"}).measure()
        with self.assertRaisesRegex(BenchError, "ended with 0"):
            sides.Driven("a", python("pass"), {"one": "1"}).measure()
        deaf = "import os, sys; os.close(0); print('{\"x\": 1}', flush=True); sys.exit('out of ears')"
        with self.assertRaisesRegex(BenchError, "out of ears"):
            sides.Driven("a", python(deaf), {"one": "1"}).measure()


class Rounds(unittest.TestCase):
    def test_sides_take_turns_and_each_goes_first(self):
        order = []

        def side(name):
            return sides.Function(name, lambda: order.append(name) or {"x": len(order)})

        groups = [[side("a"), side("b"), side("c")], [side("d")]]
        for turn in range(3):
            measure.observe(groups, turn)
        self.assertEqual("".join(order), "abcd" "bcad" "cabd")

    def test_two_sides_cannot_observe_the_same(self):
        side = sides.Function("a", lambda: {"x": 1})
        with self.assertRaisesRegex(BenchError, "two sides observe `a/x`"):
            measure.observe([[side, side]], 0)

    def test_figures_are_numbers(self):
        for value in (float("nan"), float("inf"), None, "1", True):
            with self.assertRaisesRegex(BenchError, "is not a number"):
                measure.figures(declared(), {"a/x": value})
        ratio = Figure("ratio", "", "lower", lambda found: 1 / found["a/x"])
        zero = declared(figures=[Figure("a/x", "s"), ratio], aims=[Aim("ratio", "<=", 1, "")])
        with self.assertRaisesRegex(BenchError, "divides by a figure that is 0"):
            measure.figures(zero, {"a/x": 0})

    def test_a_result_has_the_spread_and_judges_the_median(self):
        rounds = [measure.figures(declared(), {"a/x": value}) for value in (1.0, 9.0, 2.0)]
        found = measure.result("test", declared(), {}, rounds)
        self.assertEqual(found["figures"]["double"] | {"unit": None}, {
            "unit": None, "better": "lower", "min": 2.0, "median": 4.0, "max": 18.0, "rounds": [2.0, 18.0, 4.0],
        })  # fmt: skip
        self.assertEqual((found["held"], found["aims"][0]["value"]), (True, 4.0))
        rounds[0] = measure.figures(declared(), {"a/x": 2.1})
        self.assertIs(measure.result("test", declared(), {}, rounds)["held"], False)

    def test_numbers_may_differ_by_the_tolerance_alone(self):
        equality = Equality("sums", ["a", "b"], tolerance=1e-3)
        self.assertFalse(equality.differing({"a": 1000.0, "b": 1000.5}))
        self.assertTrue(equality.differing({"a": 1000.0, "b": 1002.0}))
        self.assertTrue(Equality("sums", ["a", "b"]).differing({"a": 1000.0, "b": 1000.5}))


class Machine(unittest.TestCase):
    def test_the_cores_of_others_are_those_that_do_not_idle(self):
        stat = iter(["cpu 100 0 0 100 0 0 0 0 0 0\n", "cpu 130 10 5 150 10 0 0 5 0 0\n"])
        opened = lambda path: io.StringIO(next(stat))
        with mock.patch("builtins.open", opened), mock.patch("time.sleep"), mock.patch("os.cpu_count", return_value=4):
            # Of 110 ticks 60 were idle or waited for a disk.
            self.assertAlmostEqual(measure.others(), 4 * 50 / 110)


class Inputs(unittest.TestCase):
    def setUp(self):
        self.home = self.enterContext(tempfile.TemporaryDirectory())
        self.work = Workspace({}, self.home, self.home)
        self.made = []

    def make(self, folder):
        self.made.append(folder)
        (folder / "data").write_text("x" * len(self.made))

    def half(self, folder):
        (folder / "half").write_text("x")
        raise ZeroDivisionError

    def test_an_input_is_made_once_for_each_workload(self):
        one = self.work.input("corpus", {"size": 1}, self.make)
        self.assertEqual(self.work.input("corpus", {"size": 1}, self.make), one)
        other = self.work.input("corpus", {"size": 2}, self.make)
        self.assertEqual(self.made, [one, other])

    def test_an_input_of_an_earlier_program_gives_way(self):
        keys = ({"size": 1, "program": "a"}, {"size": 2, "program": "a"}, {"size": 1, "program": "b"}, {"size": 1})
        first, larger, later, without = [self.work.input("index", key, self.make) for key in keys]
        self.assertEqual([folder.exists() for folder in (first, larger, later, without)], [False, True, True, True])

    def test_an_input_of_another_workload_is_refused(self):
        folder = self.work.input("corpus", {"size": 1}, self.make)
        stamp = folder / "input.json"
        stamp.write_text(json.dumps(json.loads(stamp.read_text()) | {"key": {"size": 7}}))
        with self.assertRaisesRegex(BenchError, "another workload.*size: 7 instead of 1"):
            self.work.input("corpus", {"size": 1}, self.make)

    def test_an_input_that_was_changed_is_refused(self):
        (self.work.input("corpus", {"size": 1}, self.make) / "data").write_text("longer")
        with self.assertRaisesRegex(BenchError, "changed after it was made"):
            self.work.input("corpus", {"size": 1}, self.make)

    def test_an_input_is_made_again_where_its_stamp_was_cut(self):
        whole = Path.write_text

        def cut(path, text):
            whole(path, text[:5])
            raise OSError("the disk is full")

        with mock.patch.object(Path, "write_text", cut), self.assertRaises(OSError):
            self.work.input("corpus", {"size": 1}, lambda folder: None)
        folder = self.work.input("corpus", {"size": 1}, self.make)
        self.assertEqual({path.name for path in folder.iterdir()}, {"data", "input.json"})

    def test_half_an_input_is_made_again(self):
        with self.assertRaises(ZeroDivisionError):
            self.work.input("corpus", {"size": 1}, self.half)
        folder = self.work.input("corpus", {"size": 1}, self.make)
        self.assertEqual({path.name for path in folder.iterdir()}, {"data", "input.json"})


class Tree(unittest.TestCase):
    """The command line in a tree with one benchmark and one document."""

    def setUp(self):
        self.root = Path(self.enterContext(tempfile.TemporaryDirectory()))
        folder = self.root / "bench/two"
        folder.mkdir(parents=True)
        (folder / "benchmark.py").write_text(DECLARATION)
        (self.root / "docs").mkdir()
        self.page = self.root / "docs/results.md"
        self.page.write_text("# Results\n\nBefore.\n\n<!-- bench:two -->\n<!-- /bench:two -->\n\nAfter.\n")
        self.others = self.enterContext(mock.patch.object(measure, "others", return_value=0.0))
        self.enterContext(mock.patch.dict(os.environ, {"SLOW": "3", "WORD": "same"}))

    def run_it(self, *given):
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            status = cli.main(list(given), self.root)
        return status, out.getvalue(), error.getvalue()

    @property
    def result(self):
        return json.loads((self.root / "bench/results/two.json").read_text())

    def test_a_benchmark_leaves_its_result(self):
        status, _, error = self.run_it("two")
        self.assertEqual(status, 0, error)
        found = self.result
        self.assertEqual((found["bench"], found["held"], found["rounds"], found["parameters"]), ("two", True, 3, {"size": 10}))
        self.assertEqual(found["figures"]["ratio"]["rounds"], [3.0, 3.0, 3.0])
        self.assertEqual(set(found["machine"]), {"cpu", "cores", "memory_gib", "load_at_start", "load_at_most", "others_at_most"})
        self.assertLessEqual(found["machine"]["load_at_start"], found["machine"]["load_at_most"])
        self.assertEqual({"date", "commit", "changed", "peers"} - set(found), set())

    def test_programs_of_another_build_are_told(self):
        for given, told in (((), False), (("--built", str(self.root)), True)):
            self.run_it("two", *given)
            self.run_it("--docs")
            self.assertIs(self.result["prebuilt"], told)
            self.assertIs(", programs built before." in self.page.read_text(), told)

    def test_a_busy_machine_is_waited_for_and_then_refused(self):
        self.others.side_effect = [1.0, 0.1, 0.0, 0.05]
        status, _, error = self.run_it("two")
        self.assertEqual((status, self.result["held"], self.result["machine"]["others_at_most"]), (0, True, 0.1))
        self.assertIn("two: waits: other programs take 1.0 of", error)
        (self.root / "bench/results/two.json").unlink()
        self.others.side_effect = [0.0, 1.0]
        with mock.patch.object(measure, "PATIENCE_S", -1):
            status, _, error = self.run_it("two")
        self.assertEqual(status, 1)
        self.assertRegex(error, "error: two: other programs take 1.0 of .* or measure with --busy")
        self.assertFalse((self.root / "bench/results/two.json").exists())

    def test_what_was_measured_on_a_busy_machine_holds_nothing(self):
        self.others.side_effect = [0.0, 1.5, 0.0]
        self.assertEqual(self.run_it("two", "--busy")[0], 0)
        self.assertEqual((self.result["held"], self.result["machine"]["others_at_most"]), (None, 1.5))
        self.run_it("--docs")
        self.assertIn("| times as fast | at least 2 | 3 (3 to 3) | not judged |", self.page.read_text())
        self.assertIn("1.5 cores taken by others as rounds began", self.page.read_text())
        self.assertIn("On a busy machine, which shows nothing.", self.page.read_text())
        path = self.root / "bench/results/two.json"
        path.write_text(json.dumps(self.result | {"held": True}))
        self.assertIn("has other held than", self.run_it("--docs")[2])

    def test_counts_are_the_same_on_a_busy_machine(self):
        path = self.root / "bench/two/benchmark.py"
        path.write_text(path.read_text().replace("parameters=", "exact=True, rounds=1, parameters="))
        self.others.return_value = 1.5
        self.assertEqual(self.run_it("two")[0], 0)
        self.assertIs(self.result["held"], True)
        self.assertEqual(self.run_it("--docs")[0], 0)
        self.assertIn("Its times are of a busy machine.", self.page.read_text())
        path.write_text(path.read_text().replace('"s", "lower"', '"count", "lower"'))
        self.assertEqual(self.run_it("two")[0], 0)
        self.assertEqual(self.run_it("--docs")[0], 0)
        self.assertNotIn("busy", self.page.read_text())

    def test_a_rehearsal_looks_at_no_load(self):
        self.others.return_value = 1.5
        self.assertEqual(self.run_it("two", "--rehearse")[0], 0)

    def test_an_aim_that_is_missed_is_a_result(self):
        with mock.patch.dict(os.environ, {"SLOW": "1.5"}):
            status, out, _ = self.run_it("two")
        self.assertEqual((status, self.result["held"]), (0, False))
        self.assertIn("MISSED times as fast", out)

    def test_what_must_be_equal_ends_it_without_a_result(self):
        with mock.patch.dict(os.environ, {"WORD": "other"}):
            status, _, error = self.run_it("--all")
        self.assertEqual(status, 1)
        self.assertRegex(error, "error: two: “the same word” does not hold: one/word = 'same', other/word = 'other'")
        self.assertFalse((self.root / "bench/results").exists())

    def test_a_failing_side_ends_it_without_a_result(self):
        with mock.patch.dict(os.environ, {"SLOW": "not a number"}):
            status, _, error = self.run_it("two")
        self.assertEqual(status, 1)
        self.assertIn("could not convert string to float", error)
        self.assertFalse((self.root / "bench/results").exists())

    def test_a_fault_of_one_benchmark_does_not_end_the_others(self):
        broken = self.root / "bench/broken"
        broken.mkdir()
        (broken / "benchmark.py").write_text(DECLARATION.replace("sides=lambda work: [", "sides=lambda work: [1 / 0, "))
        status, _, error = self.run_it("--all")
        self.assertEqual((status, self.result["held"]), (1, True))
        self.assertIn("ZeroDivisionError", error)
        self.assertIn("error: broken: ended by the exception above", error)
        self.assertFalse((self.root / "bench/results/broken.json").exists())

    def test_a_rehearsal_is_not_written(self):
        self.assertEqual(self.run_it("two", "--rehearse")[0], 0)
        self.assertFalse((self.root / "bench/results").exists())

    def test_another_workload_is_measured_and_shown_nowhere(self):
        home = self.root / "home"
        with mock.patch.dict(os.environ, {"FORAGE_BENCH_HOME": str(home)}):
            status, _, error = self.run_it("two", "--set", "size=2_000")
            self.assertEqual(status, 0, error)
            self.assertEqual(json.loads((home / "results/two-size=2_000.json").read_text())["parameters"], {"size": 2000})
            self.assertFalse((self.root / "bench/results").exists())
            self.assertIn("no such parameter; there are size", self.run_it("two", "--set", "sizes=3")[2])
            self.assertIn("a whole number", self.run_it("two", "--set", "size=0")[2])

    def test_what_a_workload_takes_is_said_before_it_is_made(self):
        path = self.root / "bench/two/benchmark.py"
        needs = 'rehearsal={"size": 1},\n    needs=lambda found: {"memory": found["size"] * 2**50, "disk": 2**20},'
        path.write_text(DECLARATION.replace('rehearsal={"size": 1},', needs).replace("[[side", "[[1 / 0, side"))
        status, _, error = self.run_it("two")
        self.assertEqual(status, 1)
        self.assertIn("it takes up to 10485760.0 GiB of memory, of which", error)
        self.assertNotIn("ZeroDivisionError", error)

    def test_an_unknown_benchmark_is_named(self):
        self.assertIn("no benchmark `three`: there are two", self.run_it("three")[2])

    def test_documents_show_what_was_measured(self):
        self.assertIn("run bench/run --docs", self.run_it("--docs", "--check")[2])
        self.assertEqual(self.run_it("--docs")[0], 0)
        self.assertIn("has not been run", self.page.read_text())
        self.assertEqual(self.run_it("--docs", "--check")[0], 0)
        self.run_it("two")
        self.assertEqual(self.run_it("--docs", "--check")[0], 1)
        self.assertEqual(self.run_it("--docs")[0], 0)
        text = self.page.read_text()
        self.assertTrue(text.startswith("# Results\n\nBefore.\n\n<!-- bench:two -->\n|  | s |\n|---|---|\n| one | 1.0 |\n| other | 3.0 |\n"))
        self.assertIn("| times as fast | at least 2 | 3 (3 to 3) | yes |", text)
        self.assertTrue(text.endswith("<!-- /bench:two -->\n\nAfter.\n"))
        self.page.write_text(text.replace("| other | 3.0 |", "| other | 2.0 |"))
        self.assertEqual(self.run_it("--docs", "--check")[0], 1)
        self.run_it("--docs")
        self.assertEqual(self.page.read_text(), text)

    def test_a_figure_of_another_declaration_is_refused(self):
        self.run_it("two")
        for change in ({"parameters": {"size": 11}}, {"aims": []}, {"peers": {"torch": "1.0"}}):
            path = self.root / "bench/results/two.json"
            kept = path.read_text()
            path.write_text(json.dumps(json.loads(kept) | change))
            self.assertIn(f"has other {next(iter(change))} than the declaration", self.run_it("--docs")[2])
            path.write_text(kept)

    def test_a_result_that_was_edited_is_refused(self):
        self.run_it("two")
        path = self.root / "bench/results/two.json"
        kept = path.read_text()

        def edited(change):
            found = json.loads(kept)
            change(found, found["figures"]["ratio"])
            path.write_text(json.dumps(found))
            return self.run_it("--docs")[2]

        self.assertEqual(edited(lambda found, ratio: None), "")
        self.assertIn("has other figures than", edited(lambda found, ratio: ratio.update(median=9.0)))
        self.assertIn("has other figures than", edited(lambda found, ratio: ratio.update(rounds=[9.0, 9.0, 9.0], median=9.0)))
        self.assertIn("has other held than", edited(lambda found, ratio: found.update(held=False)))
        self.assertIn("has other equalities than", edited(lambda found, ratio: found.update(equalities=[])))
        self.assertIn("has other rounds than", edited(lambda found, ratio: found.update(rounds=5)))
        self.assertIn("has other rounds than", edited(lambda found, ratio: found["figures"]["one/s"]["rounds"].pop()))

    def test_markers_are_checked(self):
        cases = {
            "<!-- bench:two -->\n": "no end of the block",
            "<!-- /bench:two -->\n": "does not fit",
            "<!-- bench:two -->\n<!-- /bench:two -->\n" * 2: "stands in docs/results.md:1 too",
            "<!-- bench:one -->\n<!-- /bench:one -->\n": "no benchmark `one`",
            "nothing\n": "no document has a block of two",
        }
        for text, words in cases.items():
            self.page.write_text(text)
            status, _, error = self.run_it("--docs", "--check")
            self.assertEqual(status, 1)
            self.assertIn(words, error)


if __name__ == "__main__":
    unittest.main()
