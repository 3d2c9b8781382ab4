"""The scripts that have no rounds: each ends with a line of JSON with `held`; checks fail unless it holds, measurements do not."""

import os
import re
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness.declare import ROOT
from searchlm import table

# A script, and the file that decides how it ends.
CHECKS = {
    "clients/environment.sh": "clients/environment.sh",
    "clients/judge.sh": "clients/test_judge.py",
    "clients/openapi.sh": "clients/openapi.sh",
    "clients/policy.sh": "clients/test_policy.py",
    "clients/run.sh": "clients/test_clients.py",
    "clients/tensorboard.sh": "clients/test_tensorboard.py",
    "device/run.sh": "device/account.py",
    "device/vulkan.sh": "device/compare.py",
    "faults/attacks.sh": "faults/attacks.py",
    "faults/run.sh": "faults/run.py",
    "faults/soak.sh": "faults/soak.py",
    "gpu/run.sh": "gpu/bench.py",
    "kernels/run.sh": "kernels/attention.py",
    "kill/run.sh": "kill/run.sh",
    "methods/run.sh": "methods/run.py",
    "parity/run.sh": "parity/shapes.py",
    "ranks/run.sh": "ranks/run.sh",
    "remote/run.sh": "remote/compare.py",
    "report/run.sh": "report/drive.mjs",
    "sglang/run.sh": "vllm/run.py",
    "vllm/run.sh": "vllm/run.py",
}
MEASUREMENTS = {
    "environment/external.sh": "environment/external.sh",
    "fidelity/run.sh": "fidelity/compare.py",
    "quickstart/run.sh": "quickstart/table.py",
    "rerank/run.sh": "rerank/run.py",
    "searchlm/conditions.sh": "searchlm/conditions.py",
    "searchlm/run.sh": "searchlm/table.py",
    "spurious/run.sh": "spurious/run.py",
    "start/run.sh": "start/bars.py",
    "study/run.sh": "study/bars.py",
}
# Parts of others, and the rehearsal of bench/gpu.
NEITHER = {"clients/common.sh", "device/nvrtc.sh", "device/rehearse.sh", "searchlm/start.sh", "vllm/install.sh"}

# Keys of a config as scripts set them: `KEY=VALUE` behind --set or in a list, or a key of a dictionary of such.
TABLES = "policy|data|retriever|environment|reward|engine|grpo|sampler|evaluation|warm_start"
SET = re.compile(rf"""(?<=['" ])((?:seed|device|threads|tensorboard)|(?:{TABLES})(?:\.[a-z0-9_]+)+)(?:=(?=[^=]|$)|": )""")

LINE = re.compile(r'\\?"held\\?": ?|held: failures')
FAILS = re.compile(
    r'(sys\.exit|SystemExit)\(?[01] if .* else [01]\)|^\[ "\$\w+" = true \]$|process\.exit\(failures|return (0 if .* else 1|1 if .* else 0)', re.M
)


def config():
    """The keys of each table of a config, by docs/reference-config.md, which a test of the program holds to the program. Tables of several
    environments and retrievers are taken together."""
    tables, table = {}, None
    for line in (ROOT / "docs/reference-config.md").read_text().splitlines():
        if line.startswith("## "):
            named = re.match(r"## `\[+([a-z0-9_.]+)", line)
            table = tables.setdefault(named[1] if named else "", set())
        elif key := re.match(r"\| `([a-z0-9_]+)` \|", line):
            table.add(key[1])
    return tables


def known(key, tables):
    """Whether a key is one of its innermost table. What is below, the settings of a choice, the reference tells in words."""
    parts = key.split(".")
    for length in range(len(parts) - 1, -1, -1):
        if (table := tables.get(".".join(parts[:length]))) is not None:
            return parts[length] in table
    return False


class Scripts(unittest.TestCase):
    def test_every_setting_is_a_key_of_a_config(self):
        tables, seen = config(), set()
        for ending in ("py", "sh", "txt"):
            for path in (ROOT / "bench").rglob(f"*.{ending}"):
                if path.parent.name == "tests":
                    continue
                for key in SET.findall(path.read_text()):
                    seen.add(key)
                    said = f"{path.relative_to(ROOT)} sets `{key}`, which docs/reference-config.md does not have"
                    self.assertTrue(known(key, tables), said)
        # Whatever way it is written in.
        self.assertLessEqual({"grpo.steps", "environment.settings.max_turn_tokens", "grpo.update.objective.algorithm", "threads"}, seen)
        self.assertFalse(known("grpo.update.minibatch", tables))
        self.assertFalse(known("grpo.group.size", tables))
        self.assertFalse(known("step", tables))

    def test_every_script_is_a_check_or_a_measurement(self):
        found = {f"{path.parent.name}/{path.name}" for path in ROOT.glob("bench/*/*.sh")}
        self.assertEqual(found, {*CHECKS, *MEASUREMENTS, *NEITHER})

    def test_each_ends_with_its_line_and_the_status_of_its_kind(self):
        for scripts, fails in ((CHECKS, True), (MEASUREMENTS, False)):
            for script, file in scripts.items():
                with self.subTest(script=script):
                    if script != file:
                        # As a file or as a module.
                        names = f"{re.escape(Path(file).name)}|{file.removesuffix('.py').replace('/', '[.]')}"
                        self.assertRegex((ROOT / "bench" / script).read_text(), names, f"does not run {file}")
                    text = (ROOT / "bench" / file).read_text()
                    self.assertRegex(text, LINE)
                    self.assertIs(bool(FAILS.search(text)), fails)

    def test_peers_have_exact_versions(self):
        seen = 0
        for path in sorted(ROOT.glob("bench/*/*.sh")):
            text = path.read_text().replace("\\\n", " ")
            # NAME, MODULES, then packages.
            for line in re.findall(r"^ *venv (\S+ .*)$", text, re.M):
                packages = shlex.split(line)[2:]
                self.assertTrue(packages, f"{path}: {line}")
                for package in packages:
                    seen += 1
                    self.assertRegex(package, r"^[\w.\[\]-]+==\d+(\.\d+)+$", f"{path}: {line}")
            for line in re.findall(r"(?:pip|pip\") (?:install|download) (.*)$", text, re.M):
                for word in shlex.split(line.replace("; }", "")):
                    pinned = word.startswith(("-", "$", ">")) or "==" in word or "/" in word
                    self.assertTrue(pinned, f"{path}: {line}")
        self.assertGreater(seen, 20)

    def test_a_name_of_nothing_is_refused_before_anything_is_made(self):
        asked = {
            "clients/environment.sh": [],
            "faults/attacks.sh": ["forage", "typo"],
            "faults/run.sh": ["forage", "typo"],
            "start/run.sh": [os.devnull, "typo"],
        }
        for script, arguments in asked.items():
            with self.subTest(script=script), tempfile.TemporaryDirectory() as folder:
                given = os.environ | {"FORAGE_BIN": "/nowhere/forage", "FORAGE_BENCH_HOME": folder, "PARTS": "typo", "TMPDIR": folder}
                done = subprocess.run(["bash", ROOT / "bench" / script, *arguments], env=given, capture_output=True, text=True)
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stderr, "typo")
                self.assertEqual(done.stdout, "")

    def test_a_run_that_fails_is_told_in_its_own_words(self):
        with tempfile.TemporaryDirectory() as folder:
            forage = Path(folder, "forage")
            forage.write_text("#!/bin/sh\necho no memory >&2\nexit 3\n")
            forage.chmod(0o755)
            for script, arguments in (("kill/run.sh", []), ("quickstart/run.sh", [folder]), ("ranks/run.sh", [])):
                with self.subTest(script=script):
                    given = os.environ | {"FORAGE_BIN": str(forage), "TMPDIR": folder}
                    done = subprocess.run(["bash", ROOT / "bench" / script, *arguments], env=given, capture_output=True, text=True)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertEqual(done.stderr, "no memory\n")

    def test_the_interpreter_is_left_out_where_it_cannot_be_made_alone(self):
        target, none = "printf %s /", "exit 1"
        cases = {
            "no toolchain of the interpreter": (75, none, none, "true"),
            "crates of the interpreter cannot be fetched": (75, target, none, "echo 'error: failed to download `x`' >&2; exit 101"),
            # A copy of a crate that is not there, as a patch that does not fit.
            "No such file": (1, target, none, "true"),
            "cannot be compiled": (1, target, none, "echo cannot be compiled; exit 101"),
        }
        for said, (status, rustc, apt, cargo) in cases.items():
            with self.subTest(said=said), tempfile.TemporaryDirectory() as folder:
                version = 'case $1 in --version) echo "rustc 1.99.0 (x)"; exit ;; esac'
                for name, program in (("rustc", f"{version}\n{rustc}"), ("apt-get", apt), ("cargo", cargo)):
                    (Path(folder) / name).write_text(f"#!/bin/sh\n{program}\n")
                    (Path(folder) / name).chmod(0o755)
                given = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "XDG_CACHE_HOME": f"{folder}/cache", "CARGO_HOME": folder}
                done = subprocess.run(["bash", ROOT / "sandbox/verify-guest.sh"], env=given, capture_output=True, text=True)
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)
                self.assertIn(said, done.stdout)

    def test_a_seed_that_does_as_no_published_policy_did_is_enough(self):
        shares = {(reward, seed): {"v1": 0.01, "v2": 0.96}[reward] for reward in ("v1", "v2") for seed in table.SEEDS}
        alarms = {run: ["keyword_bag"] for run in shares}
        self.assertTrue(table.held(shares, alarms))
        self.assertFalse(table.held(shares | {("v1", 2): 0.3}, alarms))
        self.assertFalse(table.held(shares | {("v2", 3): 0.1}, alarms))
        self.assertFalse(table.held(shares, alarms | {("v1", 1): []}))


if __name__ == "__main__":
    unittest.main()
