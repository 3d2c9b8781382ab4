"""What runs side by side: as many at a time as there are cores, a failure among them, and their end with the script's."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

from harness.declare import ROOT
from harness.side_by_side import Programs
from harness.tests.test_servers import lives


class SideBySide(unittest.TestCase):
    def test_each_item_is_worked_on_once_as_many_at_a_time_as_there_are_cores(self):
        cores, lock, running, most = len(os.sched_getaffinity(0)), threading.Lock(), [], []
        # However long the system keeps a thread waiting, none goes on before as many are at work.
        together = threading.Barrier(cores)

        def work(name, number):
            with lock:
                running.append(name)
                most.append(len(running))
            together.wait(60)
            with lock:
                running.remove(name)
            return number * 2

        items = [(f"item{number}", number) for number in range(3 * cores)]
        with contextlib.redirect_stderr(io.StringIO()) as told:
            found = Programs("true", os.devnull).side_by_side(work, items)
        self.assertEqual(found, {item: item[1] * 2 for item in items})
        self.assertEqual(list(found), items)
        self.assertEqual((len(most), max(most)), (len(items), cores))
        self.assertIn(f"{len(items)} of {len(items)}: item", told.getvalue())

    def test_one_that_fails_is_told_of_at_once_and_ends_the_script_after_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            programs, made = Programs("sh", Path(folder, "log")), []

            def work(name):
                made.append(programs.forage("-c", "echo bad luck >&2; exit 3" if name == "worst" else f"echo {name}"))

            with contextlib.redirect_stderr(io.StringIO()) as told, self.assertRaisesRegex(SystemExit, "exit code 3; see .*log"):
                programs.side_by_side(work, [("worst",), *((f"good{number}",) for number in range(5))])
            self.assertEqual(sorted(made), [f"good{number}\n" for number in range(5)])
            self.assertRegex(told.getvalue(), "of 6: worst: sh -c .*exit code 3")
            self.assertEqual(Path(folder, "log").read_text(), "bad luck\n")

    def test_no_program_outlives_the_script_and_none_begins_after_its_end(self):
        with tempfile.TemporaryDirectory() as folder:
            # Each leaves its process behind and takes its time; another is asked for when it has ended.
            script = f"""
from harness.side_by_side import Programs
programs = Programs("sh", "{folder}/log")
def work(name):
    for file in (f"{folder}/{{name}}a", f"{folder}/{{name}}b"):
        programs.forage("-c", f"echo $$ >{{file}}.new; mv {{file}}.new {{file}}; exec sleep 600")
programs.side_by_side(work, [(str(number),) for number in range(100)])
"""
            given = os.environ | {"PYTHONPATH": str(ROOT / "bench")}
            process = subprocess.Popen([sys.executable, "-B", "-c", script], env=given, stderr=subprocess.DEVNULL)
            until, count = time.monotonic() + 20, len(os.sched_getaffinity(0))
            while len(begun := list(Path(folder).glob("*a"))) < count:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            process.terminate()
            self.assertEqual(process.wait(timeout=20), 1)
            self.assertEqual([path for path in begun if lives(int(path.read_text()))], [])
            self.assertEqual(sorted(path.name for path in Path(folder).glob("[0-9]*")), sorted(path.name for path in begun))


if __name__ == "__main__":
    unittest.main()
