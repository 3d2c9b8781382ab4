"""What bench/spurious counts, what it asks the program for, and that each of its claims can be missed."""

import contextlib
import io
import json
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

from declared import Declared
from harness import declare, measure, picture
from spurious import benchmark, run

CONFIG = Path(run.__file__).with_name("config.toml")
CODE = "```python\nprint(2 + 3)\n```\nThat is 5.\n\\boxed{5}"
WORDS, ONCE = "2 + 3 = 5\n\\boxed{5}", "\\boxed{6}"


def record(text, em=1.0):
    return {"episode": {"score": {"parts": {"em": em}}, "turns": [{"policy": text}]}}


def found(em, steps=0.5, better=0.4):
    whole = {"em": em, "steps": steps, "code": steps, "em in steps": 0.4 + better, "em at once": 0.4}
    return {"greedy": whole, "sampled": whole}


def cells(changes=None, seeds=5):
    """Runs that meet every claim, but for changes."""
    gains = {"qwen": {"clip": 0.2, "no clip": 0.0}, "llama": {"clip": 0.02, "no clip": 0.0}, "olmo": {"clip": 0.05, "no clip": 0.0}}
    made = {}
    for family, of in gains.items():
        made[family, None, None] = [found(0.4 + 0.01 * seed) for seed in range(seeds)]
        for clipping, gain in of.items():
            made[family, "random", clipping] = [found(0.4 + 0.012 * seed + gain - 0.004) for seed in range(seeds)]
    return made | (changes or {})


class Claims(unittest.TestCase):
    def missed(self, made):
        shown = run.bars(made)
        missed = [name for name, bar in shown.items() if not bar["met"]]
        self.assertEqual(run.held(shown), not missed)
        return missed

    def test_every_claim_can_be_missed(self):
        self.assertEqual(self.missed(cells()), [])
        same = lambda em: [found(em + 0.01 * seed) for seed in range(5)]
        names = list(run.bars(cells()))
        self.assertEqual(len(names), 8)
        for changes, expected in [
            ({("olmo", None, None): [found(0.4, better=0.0)] * 5}, [names[2]]),
            ({("qwen", "random", "clip"): same(0.4)}, names[4:7]),
            ({("llama", "random", "clip"): same(0.7)}, [names[5]]),
            ({("qwen", "random", "no clip"): same(0.7)}, names[6:]),
        ]:
            self.assertEqual(self.missed(cells(changes)), expected)
        self.assertEqual(self.missed(cells(seeds=4)), ["seeds"])
        # Of a start that answers nothing at once nobody knows whether steps are better.
        starts = [found(0.4 + 0.01 * seed) for seed in range(5)]
        starts[0]["sampled"] = starts[0]["sampled"] | {"em at once": None}
        self.assertEqual(self.missed(cells({("qwen", None, None): starts})), [names[0]])
        # What was not asked for is not there, and nothing is held of it.
        self.assertEqual(self.missed({("olmo", None, None): [found(0.4)]}), [names[2], *names[3:]])
        self.assertFalse(run.held({}))

    def test_the_picture_has_a_line_for_each_reward(self):
        drawn = ElementTree.fromstring(run.drawn(cells()))
        places = [circle.get("cx") for circle in drawn.iter("{http://www.w3.org/2000/svg}circle")]
        self.assertEqual(len(places), 6)
        self.assertTrue(all(0 < float(place) < picture.WIDTH for place in places))
        for ends, marks in [((-0.1, 0.3), 8), ((0.0, 1.0), 8), ((-0.1, 0.1), 8), ((-3.0, 0.2), 8)]:
            shown = picture.round_numbers(*ends)
            self.assertTrue(3 <= len(shown) <= marks and 0 in shown, shown)


class Counts(unittest.TestCase):
    def test_conduct_is_read_off_the_text(self):
        lost = {"episode": {"score": None, "turns": []}}
        shown = run.measures([record(CODE), record(WORDS), record(ONCE, 0.0), record("\\boxed{5} = 5"), lost])
        self.assertEqual(shown, {"em": 0.75, "steps": 0.5, "code": 0.25, "em in steps": 1.0, "em at once": 0.5})
        self.assertIsNone(run.measures([record(CODE)])["em at once"])

    def test_a_familys_text_is_that_of_its_shares(self):
        plan = tomllib.loads(CONFIG.read_text())["warm_start"]["learning"]["stages"]
        for family in run.FAMILIES.values():
            made = tomllib.loads(f"stages={run.stages(plan, family)}")["stages"]
            self.assertEqual([stage["haste"] for stage in made], [family["knowledge"]] * (len(plan) - 1) + [family["habit"]])
            self.assertEqual([stage["steps"] for stage in made], [stage["steps"] for stage in plan])
        self.assertEqual(plan[-1]["haste"], run.FAMILIES[run.FREQUENT]["habit"], "the config is of the family with the frequent habit")


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.scratch, self.calls = Path(folder.name), []

    def forage(self, *arguments):
        """What the program would leave behind."""
        words = list(map(str, arguments))
        self.calls.append(words)
        out = Path(words[words.index("--out") + 1]) if "--out" in words else None
        if words[0] == "quickstart":
            (out / "start").mkdir(parents=True)
            (out / "start/model.safetensors").write_text("")
        elif words[0] == "train":
            (out / "policy").mkdir(parents=True)
            (out / "policy/model.safetensors").write_text("")
        elif words[0] == "eval":
            for file in (out, out.with_suffix(".sampled.jsonl")):
                file.write_text(json.dumps(record(CODE)) + "\n" + json.dumps(record(ONCE, 0.0)) + "\n")
        elif words[0] == "collect":
            out.write_text("")

    def main(self, *more):
        arguments = ["run.py", "--forage", "f", "--config", str(CONFIG), "--scratch", str(self.scratch), "--seeds", "2", *more]
        printed = io.StringIO()
        fake = lambda bench, *words, log=None: self.forage(*words)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()), \
                mock.patch.object(sys, "argv", arguments), mock.patch.object(run.Spurious, "forage", fake):
            run.main()
        return printed.getvalue()

    def test_every_run_begins_with_the_start_of_its_family_and_seed_and_is_made_once(self):
        asked = ["--steps", "3", "--families", "qwen", "llama", "--rewards", "random", "wrong"]
        printed = self.main(*asked)
        line = json.loads(printed.splitlines()[-1])
        self.assertEqual((line["bench"], line["held"], line["steps"]), ("spurious", False, 3))
        self.assertIn("| qwen | random | no clip | +0.000 [+0.000, +0.000] |", printed)
        self.assertTrue((self.scratch / "gains.svg").exists())
        of = lambda kind: [words for words in self.calls if words[0] == kind]
        self.assertEqual([len(of(kind)) for kind in ("quickstart", "train", "collect", "eval")], [4, 16, 4, 20])
        for words in of("train"):
            family, seed, reward, *clipping = Path(words[-1]).name.split("-")
            self.assertIn(f"policy.checkpoint={self.scratch}/start-{family}-{seed}/start", words)
            self.assertIn("threads=1", words)
            self.assertIn(f"seed={seed}", words)
            self.assertIn("grpo.steps=3", words)
            self.assertIn(run.CLIPPING[" ".join(clipping)][0], words)
            label = f'data.labels="wrong-majority:{self.scratch}/labels-{family}-{seed}.jsonl"'
            self.assertIn(label if reward == "wrong" else run.REWARDS[reward][0], words)
        self.calls.clear()
        self.assertEqual(self.main(*asked), printed)
        self.assertEqual(self.calls, [])
        for other in (["--steps", "4"], ["--steps", "3", "--architecture", "qwen2"], ["--steps", "3", "--task=--set a=1"]):
            with self.assertRaisesRegex(SystemExit, "is of another config"):
                self.main(*other)
        with mock.patch.dict(run.CLIPPING, {"clip": []}), self.assertRaisesRegex(SystemExit, "rewards or clipping"):
            self.main(*asked)

    def test_what_was_stopped_on_its_way_goes_on(self):
        for name in ("start-qwen-1", "labels-qwen-1"):
            (self.scratch / f"{name}.resume.json").write_text("{}")
        self.main("--steps", "3", "--seeds", "1", "--families", "qwen", "--rewards", "wrong")
        resumed = [Path(words[words.index("--out") + 1]).name for words in self.calls if "--resume" in words]
        self.assertEqual(sorted(resumed), ["labels-qwen-1.jsonl", "start-qwen-1.jsonl"])

    def test_what_was_stopped_behind_an_evaluation_or_a_start_is_not_made_again(self):
        (self.scratch / "start-qwen-1/start").mkdir(parents=True)
        (self.scratch / "start-qwen-1/start/model.safetensors").write_text("")
        for kind in ("", ".sampled"):
            (self.scratch / f"start-qwen-1{kind}.jsonl").write_text(json.dumps(record(CODE)) + "\n")
        self.main("--steps", "3", "--seeds", "1", "--families", "qwen", "--rewards")
        self.assertEqual(self.calls, [])
        found = json.loads((self.scratch / "start-qwen-1.json").read_text())
        self.assertEqual(found["sampled"]["code"], 1.0)
        self.assertEqual({path.name for path in self.scratch.glob("start-qwen-1*")}, {"start-qwen-1", "start-qwen-1.json"})

    def test_the_architecture_can_be_one_and_checks_make_nothing(self):
        self.main("--steps", "3", "--architecture", "llama", "--check")
        self.assertEqual({words[0] for words in self.calls}, {"config"})
        shapes = {word for words in self.calls for word in words if word.startswith("warm_start.model.architecture")}
        self.assertEqual(shapes, {'warm_start.model.architecture="llama"'})
        self.assertEqual(list(self.scratch.iterdir()), [])


# What the program would leave behind; every evaluation has the same episodes.
FORAGE = """#!/bin/sh
kind=$1 out= last=
for word; do
  [ "$last" != --out ] || out=$word
  last=$word
done
case $kind in
  quickstart) mkdir -p "$out/start" && touch "$out/start/model.safetensors" ;;
  train) mkdir -p "$out/policy" && touch "$out/policy/model.safetensors" ;;
  collect) touch "$out" ;;
  eval) for file in "$out" "${out%.jsonl}.sampled.jsonl"; do cp "$(dirname "$0")/episodes" "$file"; done ;;
esac
"""


class Benchmarks(Declared):
    program = FORAGE

    def setUp(self):
        super().setUp()
        (self.folder / "episodes").write_text("".join(json.dumps(row) + "\n" for row in (record(CODE), record(ONCE, 0.0))))

    def result(self, made):
        """What the benchmark makes of the line of these runs."""
        declared, families = declare.load("spurious"), [run.FREQUENT, run.RARE]
        made = {key: runs for key, runs in made.items() if key[0] in families}
        line = {"bars": run.bars(made), "cells": {run.named(key): runs for key, runs in made.items()}}
        seen = benchmark.numbers(json.loads(json.dumps(line)), families, ["random"])
        figures = measure.figures(declared, {f"spurious/{name}": value for name, value in seen.items()})
        found = measure.result("spurious", declared, {}, [figures])
        self.assertEqual([(aim["about"], aim["held"]) for aim in found["aims"]], [(name, bar["met"]) for name, bar in line["bars"].items()])
        return found["held"], figures

    def test_the_aims_are_the_bars(self):
        held, figures = self.result(cells())
        self.assertTrue(held)
        at = "spurious/qwen random clip"
        self.assertAlmostEqual(figures[f"{at}/greedy/gain/estimate"], 0.2)
        self.assertLess(figures[f"{at}/sampled/gain/low"], figures[f"{at}/sampled/gain/high"])
        self.assertAlmostEqual(figures["spurious/llama/em in steps"], 0.8)
        same = lambda em: [found(em + 0.01 * seed) for seed in range(5)]
        for changes in (
            {("qwen", None, None): [found(0.4, better=0.0)] * 5},
            {("qwen", "random", "clip"): same(0.4)},
            {("llama", "random", "clip"): same(0.7)},
            {("qwen", "random", "no clip"): same(0.7)},
        ):
            self.assertFalse(self.result(cells(changes))[0], changes)
        self.assertFalse(self.result(cells(seeds=4))[0])

    def test_a_missing_figure_meets_no_claim(self):
        starts = [found(0.4 + 0.01 * seed) for seed in range(5)]
        starts[0]["sampled"] = starts[0]["sampled"] | {"em at once": None}
        held, figures = self.result(cells({("qwen", None, None): starts}))
        self.assertEqual((held, figures["spurious/claims/qwen starts better in steps than at once, low end"]), (False, -1))
        # One seed has no interval.
        held, figures = self.result(cells(seeds=1))
        gain = [figures[f"spurious/qwen random no clip/sampled/gain/{end}"] for end in ("low", "high")]
        self.assertEqual((held, gain), (False, [-1, 1]))
        self.assertEqual(figures["spurious/claims/without clipping it shows no gain, low end"], 1)

    def test_a_rehearsal_has_every_figure(self):
        for name in ("spurious", "spurious-all"):
            declared = declare.load(name)
            figures = measure.figures(declared, measure.observe([[self.side(declared, **declared.rehearsal)]], 0))
            self.assertEqual((figures["spurious/qwen/sampled"], figures["spurious/llama random clip/code"]), (0.5, 0.5))
            self.assertEqual((figures["spurious/qwen/em in steps"], figures["spurious/claims/seeds"]), (1.0, 2))

    def test_the_whole_takes_up_what_the_part_has_made(self):
        part, whole = declare.load("spurious"), declare.load("spurious-all")
        scratch = lambda declared, **changes: (lambda words: words[words.index("--scratch") + 1])(self.side(declared, **changes).command)
        kept = scratch(part)
        self.assertEqual(Path(kept).parent, self.folder / "home/spurious")
        self.assertEqual((scratch(whole), scratch(part, seeds=8)), (kept, kept))
        others = {scratch(part, steps=30), scratch(part, **part.rehearsal)}
        self.forage.write_text("another")
        self.assertEqual(len(others | {kept, scratch(part)}), 4)
        rows = [len(table.rows) for table in (*part.tables, *whole.tables)]
        self.assertEqual(rows, [2, 4, 3, 30])


if __name__ == "__main__":
    unittest.main()
