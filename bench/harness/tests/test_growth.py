"""Benchmarks with sizes: what is kept when a run is stopped, their pictures, and what generates their inputs."""

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

from harness import cli, picture
from harness.declare import ROOT, BenchError

# Each measurement leaves a line in a file; FAILS names a size whose side fails.
DECLARATION = """
import os
from harness.declare import Aim, BenchError, Benchmark, Cell, Curve, Figure, Growth, Table
from harness.sides import Function

SIZES = {"1": 1, "2": 2, "4": 4, "8": 8}

def side(size):
    def measure():
        with open(os.environ["SAID"], "a") as said:
            said.write(size + "\\\\n")
        if os.environ.get("FAILS") == size:
            raise BenchError("no more")
        return {"s": float(SIZES[size] ** 2)}
    return Function(size, measure)

def benchmark(sizes):
    return Benchmark(
        title="Squares",
        sides=lambda work: [[side(size) for size in sizes]],
        parameters={"k": 1},
        rehearsal={},
        figures=[Figure(f"{size}/s", "s", "lower") for size in sizes],
        aims=[Aim(f"{size}/s", "<=", 16, f"{size}: quick") for size in sizes],
        tables=[Table(("size", "s"), [[size, Cell(f"{size}/s", 0)] for size in sizes])],
        curves=[Curve("time", "Time & more", "size", "s", {"ours": [(SIZES[size], f"{size}/s") for size in sizes]})],
    )

GROWTH = Growth(sizes=("2", "4", "8"), usual=("2", "4"), rehearsed=("1",), of=benchmark)
"""


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, ROOT / path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


class Tree(unittest.TestCase):
    def setUp(self):
        self.root = Path(self.enterContext(tempfile.TemporaryDirectory()))
        folder = self.root / "bench/squares"
        folder.mkdir(parents=True)
        (folder / "benchmark.py").write_text(DECLARATION.replace("\\\\n", "\\n"))
        (self.root / "docs").mkdir()
        self.page = self.root / "docs/growth.md"
        self.page.write_text("<!-- bench:squares -->\n<!-- /bench:squares -->\n")
        # The program whose digest decides what is kept.
        (self.root / "forage").write_text("one")
        self.said = self.root / "said"
        self.others = self.enterContext(mock.patch("harness.measure.others", return_value=0.0))
        self.enterContext(mock.patch.dict(os.environ, {"SAID": str(self.said), "FORAGE_BENCH_HOME": str(self.root / "home")}))

    def run_it(self, *given):
        out, error = io.StringIO(), io.StringIO()
        built = [] if "--docs" in given else ["--built", str(self.root)]
        self.said.write_text("")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            status = cli.main([*given, *built], self.root)
        return status, error.getvalue()

    @property
    def result(self):
        return json.loads((self.root / "bench/results/squares.json").read_text())

    def measured(self):
        return self.said.read_text().split()

    def test_sizes_are_measured_one_after_another(self):
        self.assertEqual(self.run_it("squares")[0], 0)
        self.assertEqual(self.measured(), ["2"] * 3 + ["4"] * 3)
        self.assertEqual((self.result["parameters"], self.result["held"]), ({"k": 1, "sizes": ["2", "4"]}, True))

    def test_a_size_that_was_measured_counts_again(self):
        with mock.patch.dict(os.environ, {"FAILS": "4"}):
            self.assertIn("no more", self.run_it("squares")[1])
        self.assertFalse((self.root / "bench/results").exists())
        self.assertEqual(self.run_it("squares")[0], 0)
        self.assertEqual(self.measured(), ["4"] * 3)
        self.run_it("squares", "--sizes", "all")
        self.assertEqual(self.measured(), ["8"] * 3)
        self.assertEqual(self.result["figures"]["8/s"]["rounds"], [64.0] * 3)
        self.assertIs(self.result["held"], False)

    def test_rows_of_another_program_do_not_count(self):
        self.run_it("squares")
        (self.root / "forage").write_text("another")
        self.run_it("squares")
        self.assertEqual(self.measured(), ["2"] * 3 + ["4"] * 3)

    def test_rows_of_a_busy_machine_count_on_one_alone(self):
        self.others.return_value = 1.0
        self.run_it("squares", "--busy")
        self.run_it("squares", "--busy", "--sizes", "all")
        self.assertEqual(self.measured(), ["8"] * 3)
        self.assertIsNone(self.result["held"])
        self.others.return_value = 0.0
        self.run_it("squares")
        self.assertEqual(self.measured(), ["2"] * 3 + ["4"] * 3)
        self.assertIs(self.result["held"], True)

    def test_rows_of_other_scripts_do_not_count(self):
        peer, example = self.root / "bench/peers/peer.py", self.root / "retriever/examples/load.rs"
        for path in (peer, example):
            path.parent.mkdir(parents=True)
            path.write_text("one")
        with mock.patch("harness.measure.ROOT", self.root):
            self.run_it("squares")
            for path in (peer, example):
                self.run_it("squares")
                self.assertEqual(self.measured(), [])
                path.write_text("another")
                self.run_it("squares")
                self.assertEqual(self.measured(), ["2"] * 3 + ["4"] * 3)

    def test_sizes_that_were_measured_take_nothing(self):
        self.run_it("squares", "--sizes", "2")
        # More than any machine has, of one of the sizes.
        large = 'needs=lambda found: {"disk": 2**70 * found["sizes"].count("2") + 2**20},\n        curves='
        (self.root / "bench/squares/benchmark.py").write_text(DECLARATION.replace("\\\\n", "\\n").replace("curves=", large))
        status, said = self.run_it("squares", "--sizes", "2,4")
        self.assertEqual((status, self.measured()), (0, ["4"] * 3), said)
        self.assertIn("takes up to 0.0 GiB of disk", said)
        self.assertNotIn("takes up to", self.run_it("squares", "--sizes", "2,4")[1])
        (self.root / "forage").write_text("another")
        self.assertIn("choose a smaller workload", self.run_it("squares", "--sizes", "2,4")[1])
        self.assertEqual(self.measured(), [])

    def test_a_rehearsal_has_its_own_size_and_keeps_nothing(self):
        self.assertEqual(self.run_it("squares", "--rehearse")[0], 0)
        self.assertEqual(self.measured(), ["1"])
        self.assertFalse((self.root / "home/rows").exists())

    def test_unknown_sizes_are_named(self):
        self.assertIn("no size 3: there are 2, 4, 8", self.run_it("squares", "--sizes", "2,3")[1])

    def test_the_documents_show_the_sizes_that_were_measured_and_their_pictures(self):
        self.run_it("squares", "--sizes", "2,8")
        self.assertEqual(self.run_it("--docs", "--check")[0], 1)
        self.assertEqual(self.run_it("--docs")[0], 0)
        self.assertEqual(self.run_it("--docs", "--check")[0], 0)
        text = self.page.read_text()
        self.assertIn("| 8 | 64 |", text)
        self.assertIn("![Time & more](pictures/squares-time.svg)", text)
        self.assertIn("`bench/run squares --sizes 2,8`", text)
        drawn = self.root / "docs/pictures/squares-time.svg"
        kept = drawn.read_text()
        for change in (lambda: drawn.write_text("<svg/>"), drawn.unlink, lambda: drawn.with_name("old.svg").write_text("")):
            change()
            self.assertEqual(self.run_it("--docs", "--check")[0], 1)
            self.run_it("--docs")
            self.assertEqual([(path.name, path.read_text()) for path in drawn.parent.iterdir()], [(drawn.name, kept)])

    def test_a_result_of_a_size_that_is_gone_is_named(self):
        self.run_it("squares", "--sizes", "2,8")
        path = self.root / "bench/squares/benchmark.py"
        path.write_text(path.read_text().replace('sizes=("2", "4", "8")', 'sizes=("2", "4")'))
        told = "bench/results/squares.json: no size 8: there are 2, 4; measure again: bench/run squares"
        self.assertIn(told, self.run_it("--docs")[1])


class Pictures(unittest.TestCase):
    def drawn(self, lines):
        return ElementTree.fromstring(picture.draw("Time <of> a & b", "passages", "µs", lines))

    def test_a_picture_is_xml_with_a_line_for_each_side(self):
        tree = self.drawn({"forage": [(200_000, 10), (1_000_000, 30), (21_000_000, 90.5)], "a & b": [(200_000, 20), (1_000_000, 200)]})
        lines = tree.findall("{*}polyline")
        self.assertEqual(len(lines), 2)
        places = [[tuple(map(float, place.split(","))) for place in line.get("points").split()] for line in lines]
        for line in places:
            self.assertEqual(line, sorted(line))
            # The more, the higher, which is the smaller y.
            self.assertEqual([y for _, y in line], sorted((y for _, y in line), reverse=True))
            for x, y in line:
                self.assertTrue(0 < x < picture.WIDTH and 0 < y < picture.HEIGHT)
        self.assertIn("a & b", [text.text for text in tree.findall("{*}text")])

    def test_one_point_and_nothing_at_all_are_drawn(self):
        self.assertEqual(len(self.drawn({"a": [(5, 5)]}).findall("{*}circle")), 1)
        self.assertEqual(len(self.drawn({"a": [(5, 0)], "b": []}).findall("{*}circle")), 0)

    def test_an_axis_has_at_least_two_numbers(self):
        for ends, marks in {(250, 450): "300 400", (2.1, 2.7): "2.1 2.2 2.3 2.4 2.5 2.6 2.7", (1, 8): "1 2 5", (10, 1e5): "10 100 1k 10k 100k"}.items():
            self.assertEqual(" ".join(map(picture.number, picture.Axis(ends, 0, 100).marks())), marks)
        for step in range(1000):
            low = 10 ** (step / 1000)
            for high in (low, 1.26 * low, 1.27 * low, 2 * low, 10 * low, 1000 * low):
                found = [picture.number(mark) for mark in picture.Axis((low, high), 0, 100).marks()]
                self.assertTrue(2 <= len(found) <= 12 and len({*found}) == len(found), (low, high, found))

    def test_numbers_have_three_digits(self):
        found = [picture.number(value) for value in (0.05, 12, 1500, 200_000, 999_999, 21_000_000)]
        self.assertEqual(found, ["0.05", "12", "1.5k", "200k", "1M", "21M"])


class Generator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.make = module(Path("bench/growth-bm25/make.py"))
        cls.passages = cls.make.Passages()

    def test_passages_are_always_the_same(self):
        title, words = next(self.passages.chunk(7))
        digest = hashlib.sha256(f"{title} {' '.join(words)}".encode()).hexdigest()
        self.assertEqual(digest[:16], "e4b74cfd691b3eaa")
        self.assertEqual(self.passages.words(7000), words)

    def test_a_passage_has_the_words_of_its_topic_and_frequent_ones(self):
        found = list(self.passages.chunk(3))
        self.assertEqual({len(words) for _, words in found}, {100})
        stops = sum(word in self.make.STOP_WORDS for _, words in found for word in words)
        self.assertTrue(10_000 < stops < 40_000, stops)
        # Of 34 words of a topic's 60 some come again.
        self.assertTrue(all(len({*words[0::3]}) < 34 for _, words in found))

    def test_few_words_are_of_several_topics(self):
        topics = [{*self.passages.topic(number)} for number in range(100)]
        seen = [word for topic in topics for word in topic]
        self.assertGreater(len({*seen}), 0.7 * len(seen))

    def test_the_vocabulary_grows_with_the_corpus(self):
        seen, sizes = set(), []
        for chunk in range(4):
            seen.update(word for _, words in self.passages.chunk(chunk) for word in words)
            sizes.append(len(seen))
        self.assertTrue(all(after > 1.05 * before for before, after in zip(sizes, sizes[1:])), sizes)

    def test_rows_have_the_form_of_search_r1_and_parts_follow_each_other(self):
        with tempfile.TemporaryDirectory() as folder:
            for part in range(2):
                self.passages.write(Path(folder) / f"{part}.jsonl", [part])
            rows = [json.loads(line) for part in range(2) for line in (Path(folder) / f"{part}.jsonl").read_text().splitlines()]
        self.assertEqual([row["id"] for row in rows], [str(number) for number in range(2000)])
        title, text = rows[1234]["contents"].split("\n")
        self.assertEqual((title[0], title[-1], text.split()), ('"', '"', self.passages.words(1234)))

    def test_boolean_queries_are_of_every_kind(self):
        found = self.passages.boolean(self.make.Draw("a test", 16), 1000)
        self.assertRegex(found["phrase"], r'^"\w+ \w+"$')
        texts = "".join(f"{' '.join(words)}\n" for _, words in self.passages.chunk(0))
        draw = self.make.Draw("more tests", 16 * 6)
        for _ in range(6):
            self.assertIn(self.passages.boolean(draw, 1000)["phrase"].strip('"'), texts)
        self.assertRegex(found["rare"], r'^"\w+ \w+"$')
        self.assertRegex(found["mixed"], r"^\(\w+ OR \w+\) AND \w+ AND NOT \w+$")
        self.assertEqual(found["broad"].count(" OR "), 5)


    def test_the_page_says_what_the_largest_size_takes(self):
        needs = module(Path("bench/growth-bm25/benchmark.py")).needs
        page = " ".join((ROOT / "docs/growth.md").read_text().split())
        self.assertIn(f"21 million passages take up to {needs({'sizes': ['21m']})['disk'] / 2**30:.1f} GiB of disk", page)
        # Sizes are kept beside each other.
        several = needs({"sizes": ["200k", "1m"]})["disk"]
        self.assertGreater(several, needs({"sizes": ["1m"]})["disk"])
        self.assertLess(several, 2**33)


class Vectors(unittest.TestCase):
    def test_the_page_says_what_the_largest_size_takes(self):
        dense = module(Path("bench/growth-dense/benchmark.py"))
        needs = dense.needs({"sizes": ["2m-768"]})
        memory, disk = (f"{needs[kind] / 2**30:.1f} GiB of {kind}" for kind in ("memory", "disk"))
        page = " ".join((ROOT / "docs/growth.md").read_text().split())
        self.assertIn(f"2 million of 768 numbers take up to {memory} and {disk}.", page)

    def test_faiss_is_not_trained_for_what_no_search_asks_for(self):
        # Distances by polysemous codes, which an index of products is trained for unless it is told not to.
        self.assertRegex((ROOT / "bench/growth-dense/peer.py").read_text(), r'"PQ\{dimension // 4\}np"')


class Updates(unittest.TestCase):
    def test_passages_are_added_for_as_long_as_the_load_lasts(self):
        growth, said = module(Path("bench/growth-bm25/benchmark.py")), []

        def timed(command, log):
            self.assertEqual(command[1:3], ["index", "add"])
            said.append(f"add to {command[3].name}")
            time.sleep(0.01)
            said.append("added")
            return {"wall_s": 1.0}

        def load(server, connections, seconds):
            said.append("load")
            # Beside additions it lasts for several of them, on a busy machine too.
            most = time.monotonic() + (60 if "add to grown" in said else 0.1)
            while said.count("add to again") < 3 and time.monotonic() < most:
                time.sleep(0.01)
            said.append("loaded")
            return {"p99_ms": 1.0, "per_second": 1.0, "other_statuses": 0}

        with tempfile.TemporaryDirectory() as scratch:
            index = Path(scratch, "index")
            index.mkdir()
            (index / "manifest.json").write_text('{"counts": {"passages": 5}}')
            work = mock.Mock(parameters={"seconds": 1}, scratch=Path(scratch), forage="forage")
            served = mock.MagicMock()
            served.return_value.__enter__.return_value = mock.Mock(resident=[1], private=[1], ready_s=0.1)
            with mock.patch.multiple(growth, timed=timed, Load=lambda *given: load, serve=served):
                growth.update(work, "update", index, index).measure()
        busy = said[said.index("add to grown") :]
        self.assertEqual(busy.count("add to grown"), 1)
        self.assertGreater(busy.count("add to again"), 2)
        self.assertEqual(busy[-1], "added", "the load outlasted what was added")


class Environment:
    """A server of episodes, each of which ends with its third turn; a turn shows `text`."""

    def __init__(self, text):
        self.text, self.turns, self.asked = text, {}, []

    def answer(self, path, body):
        if path == "/reset":
            self.turns[body["episode_id"]] = 0
        else:
            self.turns[body["episode_id"]] += 1
        self.asked.append((path, body["episode_id"]))
        return {"observation": {"text": self.text}, "done": self.turns[body["episode_id"]] == 3}


class Asked(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps(self.server.environment.answer(self.path, body)).encode()
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer) + answer)


class Sessions(unittest.TestCase):
    @contextlib.contextmanager
    def episodes(self, environment):
        """Fifty sessions of a server, whose turns are to show that something was found."""
        sessions = module(Path("bench/growth-sessions/benchmark.py"))
        server = ThreadingHTTPServer(("127.0.0.1", 0), Asked)
        server.environment = environment
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield sessions.Episodes("{}:{}".format(*server.server_address), 50, "a turn", "found ")
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def test_turns_that_find_nothing_are_not_measured(self):
        with self.episodes(Environment("(Nothing was printed.)")) as episodes:
            with self.assertRaisesRegex(BenchError, "'a turn' finds nothing: .*Nothing was printed"):
                episodes.open()

    def test_all_sessions_take_turns_and_begin_again(self):
        environment = Environment("found Velm")
        with self.episodes(environment) as episodes:
            episodes.open()
            self.assertEqual([*environment.turns.values()], [1] * 50)
            times, taken = episodes.play(0.1)
        steps = [name for path, name in environment.asked if path == "/step"]
        self.assertEqual(len(steps), 50 + len(times))
        self.assertTrue(all(steps.count(f"s{number}") >= 2 for number in range(50)))
        self.assertTrue(all(turns < 3 for turns in environment.turns.values()))
        self.assertGreater(taken, 0)


if __name__ == "__main__":
    unittest.main()
