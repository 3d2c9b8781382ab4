"""Runs of tiny policies side by side, one a core: the weights are those of a run on all cores, bit for bit, and two such runs take 0.6 of
the time of one after the other. For shells there is bench/side_by_side.sh."""

import os
import shlex
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed

# What a run is given that has others beside it.
ONE_THREAD = ("--set", "threads=1")


class Programs:
    """Calls of a program, whose errors go to a file. None outlives the script."""

    def __init__(self, program, log):
        self.program, self.log = program, log
        self.lock, self.running, self.stopped = threading.Lock(), set(), False

    def forage(self, *arguments, log=None):
        """What a command prints."""
        command = [str(self.program), *map(str, arguments)]
        with open(log or self.log, "a") as errors:
            with self.lock:
                if self.stopped:
                    sys.exit("stopped")
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
                self.running.add(process)
            printed, _ = process.communicate()
            with self.lock:
                self.running.remove(process)
        if process.returncode != 0:
            sys.exit(f"{shlex.join(command)}: exit code {process.returncode}; see {errors.name}")
        return printed

    def side_by_side(self, work, items):
        """What `work` comes to for each of the items, as many at a time as there are cores. Where one fails the others go on, since what
        they make is kept; then the script ends."""
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
        try:
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                try:
                    begun = {pool.submit(work, *item): " ".join(map(str, item)) for item in items}
                    for count, run in enumerate(as_completed(begun), 1):
                        failed = f": {error}" if (error := run.exception()) else ""
                        print(f"{count} of {len(begun)}: {begun[run]}{failed}", file=sys.stderr)
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    self.stop()
                    raise
                return {item: run.result() for item, run in zip(items, begun)}
        finally:
            signal.signal(signal.SIGTERM, before)

    def stop(self):
        """Ends what runs, which keeps a checkpoint, and lets nothing else begin."""
        with self.lock:
            self.stopped = True
            for process in self.running:
                process.terminate()
