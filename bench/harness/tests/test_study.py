"""What the line of JSON of bench/study says: that each of its bars can be missed, and that what is not there is."""

import contextlib
import copy
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from harness import declare, measure
from harness.declare import ROOT
from harness.tests.test_servers import lives
from study import bars, benchmark

SEEDS = range(1, 11)


def interval(estimate, half=0.05):
    return {"estimate": estimate, "low": estimate - half, "high": estimate + half}


def arm(name, start, score, lead=None):
    seeds = [{"seed": seed, "start": start, "score": score, "gain": interval(score - start)} for seed in SEEDS]
    lead = lead and {"difference": interval(lead), "p": 0.01, "p_adjusted": 0.02}
    return {"name": name, "seeds": seeds, "gain": interval(score - start), "p": 0.01, "lead": lead}


def study(outcome="answer"):
    """A study that meets every bar."""
    greedy = {
        "outcome": outcome,
        "arms": [arm("trained", 0.3, 0.8)] + [arm(name, 0.3, 0.3, 0.5) for name in bars.TWINS[outcome]],
        "baselines": [arm(name, 0.3, 0.5, 0.3) for name in bars.BASELINES[outcome]],
        "late_gain": {str(seed): interval(0.6) for seed in SEEDS},
        "effort": {"start": None, "trained": interval(0.5)},
    }
    curve = [{"k": k, "value": interval(0.9)} for k in (1, 64)]
    gained = [{"k": k, "value": interval(0.1)} for k in (1, 64)]
    sampled = {"arms": [arm("trained", 0.2, 0.6)], "pass_at_k": {"a": curve, "b": curve, "differences": gained}}
    return {"greedy": greedy, "sampled": sampled, "words": ["Training gained."]}


def record(hops, searches=1, found=1.0, right=1.0):
    score = {"total": right, "parts": {"em": right, "retrieval": found}}
    return {"searches": searches, "episode": {"task": {"hops": hops}, "score": score}}


RECORDS = [record(1), record(2), record(2, right=0.0), record(2), record(3), record(3, right=0.0), record(3, searches=0, found=0.0, right=0.0)]
HOPS = [bars.conduct(RECORDS) for _ in SEEDS]


class Study(unittest.TestCase):
    def missed(self, change=lambda found: None, hops=HOPS, times=(2.0,), outcome="answer"):
        found = copy.deepcopy(study(outcome))
        change(found)
        shown = bars.bars(found, hops, times)
        missed = [name for name, bar in shown.items() if not bar["met"]]
        self.assertEqual(bars.held(shown), not missed)
        return missed

    def test_a_study_that_meets_every_bar_holds(self):
        for outcome in bars.TWINS:
            self.assertEqual(self.missed(outcome=outcome), [])
        self.assertFalse(bars.held({}))

    def test_every_bar_can_be_missed(self):
        def fewer(found):
            found["greedy"]["arms"][0]["seeds"].pop()

        def each(key, value):
            return lambda found: [seed.update({key: value}) for seed in found["greedy"]["arms"][0]["seeds"]]

        changes = {
            "seeds": fewer,
            "start, greedy": each("start", 0.0),
            "trained, greedy": each("score", 0.7),
            "sampled gain": lambda found: found["sampled"]["arms"][0]["gain"].update(estimate=0.3),
            "late share of the rise": lambda found: found["greedy"]["late_gain"].popitem(),
            "low end of searches against hops": lambda found: found["greedy"].update(effort=None),
            "largest k of pass@k": lambda found: found["sampled"].update(pass_at_k=None),
            "baseline demonstrations": lambda found: found["greedy"]["baselines"].pop(),
            "low end of the lead over shuffled": lambda found: found["greedy"]["arms"][4]["lead"]["difference"].update(low=0.1),
            "low end of the lead over wrong": lambda found: found["greedy"]["arms"].pop(),
        }
        for name, change in changes.items():
            self.assertIn(name, self.missed(change), name)
        self.assertEqual(self.missed(times=[11.0]), ["minutes of a run"])
        self.assertEqual(self.missed(hops=[{} for _ in SEEDS]), ["trained, two hops", "low end of trained, three hops"])
        behind = lambda found: found["greedy"]["baselines"][-1]["lead"]["difference"].update(low=-0.1)
        self.assertEqual(self.missed(behind, outcome="ranking"), ["low end of the lead over keywords"])
        names = set(bars.bars(study(), HOPS, [2.0])) - {f"baseline {name}" for name in bars.BASELINES["answer"]}
        names -= {f"low end of the lead over {name}" for name in bars.TWINS["answer"]}
        self.assertLessEqual(names, set(changes) | {"minutes of a run", "trained, two hops", "low end of trained, three hops"})

    def test_the_benchmarks_declare_what_the_line_has(self):
        for name, outcome in (("study", "answer"), ("study-code", "answer"), ("study-query", "ranking")):
            declared = declare.load(name, ROOT)
            found = study(outcome)
            found["sampled"]["arms"], found["sampled"]["baselines"] = found["greedy"]["arms"], found["greedy"]["baselines"]
            found["greedy"]["arms"][0]["cost"] = {"episodes": 100.0, "seconds": 5.0}
            shown = bars.bars(found, HOPS, [2.0])
            self.assertEqual(sorted(shown), sorted(benchmark.names(outcome)))
            curves = bars.curves(found, {"start": HOPS, "trained": HOPS})
            seen = benchmark.read(outcome)([{"figures": shown, "policies": bars.policies(found), "curves": curves}])
            seen = {f"study/{name}": value for name, value in seen.items()}
            figures = measure.figures(declared, seen)
            self.assertEqual(figures["bars met"], 1)
            self.assertEqual((figures["study/greedy/trained/seconds"], figures["study/greedy/demonstrations/seconds"]), (5.0, 0))
            self.assertAlmostEqual(figures["study/sampled/random/lead/low"], 0.45)
            if outcome == "answer":
                self.assertEqual((figures["study/hops/trained/3/read"], figures["study/pass/64/trained"]), (0.5, 0.9))
                self.assertEqual((figures["study/pass/1/difference/estimate"], figures["study/pass/8/start"]), (0.1, 0))
            shown["seeds"]["met"] = False
            seen |= {f"study/bar {name}": int(bar["met"]) for name, bar in shown.items()}
            self.assertLess(measure.figures(declared, seen)["bars met"], 1)

    def test_a_rehearsal_trains_in_small_and_in_a_folder_of_its_own(self):
        with tempfile.TemporaryDirectory() as home:
            forage = Path(home, "forage")
            forage.touch()
            for name in ("study", "study-code", "study-query"):
                declared = declare.load(name, ROOT)
                commands = []
                for parameters in (declared.parameters, declared.parameters | declared.rehearsal):
                    work = mock.Mock(parameters=parameters, home=Path(home), forage=forage)
                    commands.append(declared.sides(work)[0][0].command)
                whole, small = commands
                self.assertEqual(whole[2:4], [declared.parameters["config"], "1 2 3 4 5 6 7 8 9 10"])
                self.assertEqual(len(whole), 5, "nothing but the config's own settings")
                self.assertEqual((small[2], small[3]), (whole[2], "1 2"))
                self.assertEqual(small[5:], [word for setting in benchmark.SMALL for word in ("--set", setting)])
                self.assertNotEqual(small[1], whole[1])

    def test_conduct_is_counted_by_hops(self):
        three = bars.conduct(RECORDS)[3]
        self.assertEqual((three["questions"], three["found"], three["read"]), (3, 1.0, 0.5))
        self.assertAlmostEqual(three["search"], 2 / 3)
        self.assertAlmostEqual(three["right"], 1 / 3)

    def test_it_prints_all_and_ends_with_the_line(self):
        with tempfile.TemporaryDirectory() as scratch:
            run = Path(scratch, "seed-1")
            (run / "evaluation").mkdir(parents=True)
            for name in ("start", "trained"):
                (run / "evaluation" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in RECORDS))
            (run / "metrics.jsonl").write_text('{"step": 0, "time/rollout_s": 30.0, "time/update_s": 60.0, "time/wait_s": 15.0}\n')
            file = Path(scratch, "study.json")
            file.write_text(json.dumps(study()))
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), mock.patch.object(sys, "argv", ["bars", str(file), str(run)]):
                bars.main()
        lines = printed.getvalue().splitlines()
        last = json.loads(lines[-1])
        self.assertEqual(last["figures"]["minutes of a run"], {"value": 1.75, "met": True})
        self.assertFalse(last["held"], "one run has no interval over seeds at three hops")
        for said in ("Training gained.", "| trained | 3 | 0.667 | 1.000 | 0.500 | 0.333 |", "missed low end of trained, three hops: not there"):
            self.assertIn(said, lines)

    def test_an_evaluation_goes_on_where_some_run_has_its_record(self):
        with tempfile.TemporaryDirectory() as folder:
            scratch, forage, told = Path(folder, "scratch"), Path(folder, "forage"), Path(folder, "told")
            forage.write_text(f'#!/bin/sh\necho "$@" >{told}\n')
            forage.chmod(0o755)
            partials = [scratch / f"seed-{seed}/evaluation.partial" for seed in (1, 2)]
            for partial in partials:
                partial.mkdir(parents=True)
                (partial.parent / "done").touch()
            command = ["bash", ROOT / "bench/study/run.sh", scratch, "configs/smoke.toml", "1 2"]
            for begun in (False, True):
                if begun:
                    (partials[1] / "evaluation.resume.json").touch()
                subprocess.run(command, env=os.environ | {"FORAGE_BIN": str(forage)}, stderr=subprocess.DEVNULL)
                words = told.read_text().split()
                self.assertEqual(words[:4], ["eval", "--controls", *(str(partial.parent) for partial in partials)])
                self.assertIs("--resume" in words, begun)

    def test_no_training_outlives_the_script(self):
        with tempfile.TemporaryDirectory() as folder:
            scratch, forage = Path(folder, "scratch"), Path(folder, "forage")
            # Takes the folder of its run as `train` does, and leaves its process in it.
            forage.write_text('#!/bin/sh\nwhile [ "$1" != --out ]; do shift; done\nmkdir -p "$2"; echo $$ >"$2/process"; exec sleep 600\n')
            forage.chmod(0o755)
            command = ["bash", ROOT / "bench/study/run.sh", scratch, "configs/smoke.toml", "1 2"]
            script = subprocess.Popen(command, env=os.environ | {"FORAGE_BIN": str(forage)}, stderr=subprocess.DEVNULL)
            until = time.monotonic() + 20
            count = min(2, int(subprocess.check_output(["nproc"])))
            while len(found := [text for path in scratch.glob("*/process") if (text := path.read_text())]) < count:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            script.terminate()
            script.wait()
            while any(lives(int(process)) for process in found):
                self.assertLess(time.monotonic(), until, "a training goes on")
                time.sleep(0.01)


class Prose(unittest.TestCase):
    def test_readme_and_guide_have_the_figures_of_the_study(self):
        found = json.loads((ROOT / "bench/results/study.json").read_text())["figures"]
        shown = lambda name: f"{found[f'study/{name}']['median']:.2f}".removeprefix("0")
        for kind in ("greedy", "sampled"):
            rise = f"rose from {shown(f'{kind}/trained/start')} to {shown(f'{kind}/trained/end')} (means)"
            control = shown(f"{kind}/any_search/end")
            for page in ("README.md", "docs/quickstart.md"):
                text = " ".join((ROOT / page).read_text().split())
                self.assertIn(rise, text, page)
                self.assertRegex(text.split(rise)[1][:100], rf"control.* to {re.escape(control)}[.:]", page)


if __name__ == "__main__":
    unittest.main()
