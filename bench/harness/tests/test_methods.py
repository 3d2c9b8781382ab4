"""Which runs bench/methods takes for its own, and what it makes of them."""

import argparse
import contextlib
import io
import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from declared import Declared
from harness import declare, measure
from harness.declare import ROOT, BenchError
from methods import run

# What the program would leave behind after two steps: every policy rises from .25 to .5, which the first look has seen.
FORAGE = r"""#!/bin/sh
kind=$1 out= last=
for word; do
  [ "$last" != --out ] || out=$word
  last=$word
done
config='[grpo]\nsteps = 2\nprompts_per_step = 16\ngroup_size = 8\n'
case $kind in
  train)
    if [ -z "$out" ]; then printf "$config"; exit; fi
    mkdir -p "$out/checkpoints/step-000002/model"
    printf "$config" >"$out/config.toml"
    printf '{"step": 0, "reward/mean": 0.5, "val/em": 0.5}\n{"step": 1, "reward/mean": 0.5}\n' >"$out/metrics.jsonl" ;;
  eval) touch "$out" "${out%.jsonl}.sampled.jsonl" ;;
  compare)
    em='{"a": 0.25, "b": 0.5, "difference": {"estimate": 0.25, "low": 0.2, "high": 0.3}}'
    printf '{"metrics": {"em": %s, "searches": {"b": 1.5}}}\n' "$em" ;;
esac
"""
BENCHMARKS = ("methods", "methods-hops", "methods-ratios")


class Methods(unittest.TestCase):
    def test_a_run_of_another_length_is_refused(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, "dapo-1")
            folder.mkdir()
            (folder / "arguments").write_text("")
            (folder / "config.toml").write_text("[grpo]\nsteps = 50\nprompts_per_step = 16\ngroup_size = 8\n")
            bench = run.Bench(argparse.Namespace(forage="forage", scratch=scratch, steps=200, budget=25600))
            with self.assertRaisesRegex(SystemExit, "trained for 50 steps and not for 200"):
                bench.train("dapo", [], 1)

    def test_a_run_of_other_arguments_is_refused(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, "kl-1")
            folder.mkdir()
            (folder / "arguments").write_text("--set a=1")
            (folder / "config.toml").write_text("[grpo]\nsteps = 200\nprompts_per_step = 16\ngroup_size = 8\n")
            bench = run.Bench(argparse.Namespace(forage="forage", scratch=scratch, steps=200, budget=25600))
            with self.assertRaisesRegex(SystemExit, "other arguments"):
                bench.train("kl", ["--set", "a=2"], 1)

    def test_a_scratch_folder_is_of_one_task(self):
        with tempfile.TemporaryDirectory() as scratch:
            config = Path(scratch, "config.toml")
            config.write_text("seed = 1\n")
            given = {"forage": "forage", "scratch": scratch, "config": str(config)}
            task = "--set data.world.difficulty.hops=[0.0,1.0]"
            bench = run.Bench(argparse.Namespace(**given, task=task))
            self.assertEqual(bench.world(3)[:2], task.split())
            bench.claim()
            bench.claim()
            with self.assertRaisesRegex(SystemExit, "another config or TASK"):
                run.Bench(argparse.Namespace(**given, task="")).claim()

    def test_each_method_is_trained_under_each_seed_and_held_against_the_start_and_the_first(self):
        with tempfile.TemporaryDirectory() as folder:
            scratch, config, calls = Path(folder), Path(folder, "config.toml"), []
            config.write_text("seed = 1\n")
            metric = "em"
            grpo = "[grpo]\nsteps = 100\nprompts_per_step = 16\ngroup_size = 8\n"

            def forage(bench, *arguments, log=None):
                """What the program would leave behind: with refills every step plays its questions twice."""
                words = list(map(str, arguments))
                calls.append(words)
                out = Path(words[words.index("--out") + 1]) if "--out" in words else None
                if words[0] == "collect":
                    out.write_text("")
                elif words[0] == "train" and out:
                    refilled = {"curriculum/refilled_groups": 16.0} if "grpo.refills=4" in words else {}
                    played = {} if "--rollouts" in words else {"time/rollout_s": 1.0}
                    rows = [{"step": step, "time/update_s": 0.5} | played | refilled for step in range(100)]
                    for row in rows[4::5] if played else []:
                        row["val/em"] = row["step"] / 100
                    for row in rows if played else []:
                        row["reward/mean"] = row["step"]
                    for step in range(2, 101, 2) if refilled else [100]:
                        (out / f"checkpoints/step-{step:06}/model").mkdir(parents=True)
                    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
                    (out / "config.toml").write_text(grpo)
                elif words[0] == "eval":
                    for file in (out, out.with_suffix(".sampled.jsonl")):
                        file.write_text("")
                elif words[0] == "compare":
                    scores = [{"start-1": 0.25, "start-2": 0.25, "dapo-1": 0.5, "dapo-2": 0.5}.get(Path(file).name.split(".")[0], 0.75)
                              for file in words[1:3]]
                    difference = dict.fromkeys(("estimate", "low", "high"), scores[1] - scores[0])
                    found = {metric: {"a": scores[0], "b": scores[1], "difference": difference}}
                    known = Path(words[2]).name.startswith(("dapo-1", "dapo-2"))
                    return json.dumps({"metrics": found | ({"searches": {"b": 1.5}} if known else {})})
                return grpo

            def main(*methods, ends="^0$"):
                calls.clear()
                arguments = ["run.py", "--forage", "f", "--config", str(config), "--scratch", folder, "--steps", "100", "--seeds", "2"]
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()), \
                        mock.patch.object(sys, "argv", [*arguments, "--methods", *methods]), \
                        mock.patch.object(run.Bench, "forage", forage), self.assertRaises(SystemExit) as ended:
                    run.main()
                self.assertRegex(str(ended.exception.code), ends)
                return printed.getvalue()

            both = ("dapo", "dapo-refills")
            printed = main(*both)
            self.assertIn("| dapo | 12800 | 100 | 94.500 | 1.50 | 0.500 | 0.250 | 0.500 | +0.250 [+0.250, +0.250] |  | 880 | 2.5 |", printed)
            gain, lead = "+0.500 [+0.500, +0.500]", "+0.250 [+0.250, +0.250]"
            self.assertIn(f"| dapo-refills | 12800 | 50 | 44.500 |  | 0.750 | 0.250 | 0.750 | {gain} | {lead} | – | 1.2 |", printed)
            line = json.loads(printed.splitlines()[-1])
            self.assertEqual((line["bench"], line["held"], line["seeds"], line["steps"]), ("methods", True, 2, 100))
            self.assertEqual(line["figures"]["dapo-refills"]["episodes"], [12800, 12800])
            of = lambda kind: [words for words in calls if words[0] == kind and "--dry-run" not in words]
            self.assertEqual([len(of(kind)) for kind in ("train", "eval", "compare")], [4, 6, 11])
            for words in of("train"):
                self.assertIn("threads=1", words)
                self.assertIn(f"data.world.seed={1000000 + int(words[words.index('--out') + 1][-1])}", words)
            self.assertEqual([path.name for path in (scratch / "dapo-refills-1/checkpoints").iterdir()], ["step-000050"])
            self.assertEqual(main(*both), printed)
            self.assertEqual({words[0] for words in calls if "--dry-run" not in words}, {"compare"}, "what was made is not made again")
            printed = main("dapo", "a_lol", "lipo")
            self.assertIn(f"| lipo | 12800 | 100 |  |  | 0.750 | 0.250 | 0.750 | {gain} | {lead} | – | 0.8 |", printed)
            recorded = [words for words in calls if words[0] == "collect"]
            self.assertEqual(len(recorded), 2, "one for each seed")
            for words in recorded:
                self.assertEqual(words[words.index("--samples") + 1], "8")
                self.assertEqual(words[words.index("--questions") + 1], "1600")
            for words in of("train"):
                seed = words[words.index("--out") + 1][-1]
                self.assertEqual(words[words.index("--rollouts") + 1], str(scratch / f"recorded-{seed}.jsonl"))
            metric = "ndcg"
            shutil.rmtree(scratch / "dapo-1")
            main(*both, ends=r"no exact match \(ndcg\); name one whose episodes end in answers")
            self.assertNotIn("train", {words[0] for words in calls if "--dry-run" not in words})

    def test_questions_are_counted_to_a_level(self):
        steps = [{}, {"val/em": 0.4}, {}, {"val/em": 0.5}, {"val/em": 0.3}]
        self.assertEqual(run.asked(steps, [16, 16, 32, 16, 16], 0.5), 80)
        self.assertIsNone(run.asked(steps[:3], [16] * 3, 0.5))
        self.assertEqual([run.reached(counts) for counts in ([80, 100], [80, None], [None, None])], ["90", "80 (1 of 2)", "–"])

    def test_methods_must_play_as_many_episodes_each(self):
        for episodes, held in {(100, 90): True, (100, 89): False, (100, 101): False, (): False}.items():
            figures = {str(at): {"episodes": [spent]} for at, spent in enumerate(episodes)}
            self.assertIs(run.held(figures, 100), held, episodes)

    def test_methods_are_told_by_their_intervals(self):
        leads = {"dapo": None, "a": (0.1, 0.05, 0.15), "b": (-0.1, -0.2, -0.05), "c": (0.0, -0.1, 0.1), "d": (0.0, -0.1, 0.1)}
        figures = {name: {"lead": lead} for name, lead in leads.items()}
        self.assertEqual(run.told(figures, "dapo"), "ahead of dapo: a; behind dapo: b; neither shown: c, d")


class Benchmarks(Declared):
    program = FORAGE

    def test_every_method_of_the_file_has_a_row(self):
        lines = (ROOT / "bench/methods/methods.txt").read_text().splitlines()
        names = [line.split()[0] for line in lines if line and not line.startswith("#")]
        for name in BENCHMARKS:
            declared = declare.load(name)
            chosen = list(declared.parameters["methods"])
            self.assertEqual([row[0] for row in declared.tables[0].rows], ["start", *chosen])
            self.assertEqual((chosen[0], set(chosen) - set(names)), ("dapo", set()))
            # By its arguments too, so that a result of others is refused.
            self.assertEqual(declared.parameters["methods"], run.methods(chosen))
        self.assertEqual(list(declare.load("methods").parameters["methods"]), names)

    def test_a_rehearsal_has_every_figure(self):
        for name in BENCHMARKS:
            declared = declare.load(name)
            shutil.rmtree(self.folder / "scratch", ignore_errors=True)
            seen = measure.observe([[self.side(declared, **declared.rehearsal)]], 0)
            measure.check(declared, seen)
            figures = measure.figures(declared, seen)
            last = list(declared.parameters["methods"])[-1]
            shown = [figures[f"methods/{last}/{part}"] for part in ("episodes", "steps", "searches", "greedy", "trained", "questions")]
            self.assertEqual(shown, [256, 2, 1.5, 0.5, 0.5, 16])
            for at in ("dapo/gain/low", f"{last}/lead/estimate", "start"):
                self.assertEqual(figures[f"methods/{at}"], 0.25, at)
            self.assertEqual((figures["methods/dapo/seeds"], figures[f"methods/{list(declared.parameters['methods'])[1]}/trained"]), (2, 0))
            held = lambda **changes: measure.result(name, declared, {}, [figures | changes])["held"]
            self.assertTrue(held())
            self.assertFalse(held(**{"methods/dapo/gain/low": 0.0}))
            with self.assertRaisesRegex(BenchError, "play as many episodes.* does not hold"):
                measure.check(declared, seen | {"methods/fair": 0})

    def test_the_whole_has_no_zeros_in_place_of_a_method(self):
        declared = declare.load("methods-ratios")
        found = {"episodes": [10], "steps": [1], "searches": [1.0], "greedy": [0.5], "start": [0.25], "trained": [0.5],
                 "gain": [0.25, 0.2, 0.3], "lead": [0.0, -0.1, 0.1], "asked": [None]}
        line = {"held": True, "figures": {method: found for method in declared.parameters["methods"]}}
        seen = lambda: {f"methods/{name}": value for name, value in self.side(declared).read([line]).items()}
        figures = measure.figures(declared, seen())
        self.assertEqual((figures["methods/gspo/questions"], figures["methods/gspo/seeds"]), (0, 0))
        del line["figures"]["gspo"]
        with self.assertRaisesRegex(BenchError, "methods/gspo"):
            measure.figures(declared, seen())

    def test_what_was_trained_is_kept_for_its_program_task_and_steps(self):
        scratch = lambda name="methods", **changes: (lambda words: words[words.index("--scratch") + 1])(
            self.side(declare.load(name), **changes).command)
        kept = scratch()
        self.assertEqual(Path(kept).parent, self.folder / "home/methods")
        self.assertEqual(scratch(seeds=5), kept)
        others = {scratch(steps=200), scratch("methods-hops"), scratch("methods-ratios"), scratch(**declare.load("methods").rehearsal)}
        self.forage.write_text("another")
        self.assertEqual(len(others | {kept, scratch()}), 6)


if __name__ == "__main__":
    unittest.main()
