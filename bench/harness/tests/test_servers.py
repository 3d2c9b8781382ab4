"""Servers of several processes: what they take together, and their end."""

import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

from harness.servers import Server, free_port, tree
from harness.tests.test_growth import module

# Answers, and has a child that takes 64 MiB and some processor time before the first answer.
FORKING = """
import http.server, subprocess, sys

child = "data = b'x' * (64 << 20); print(sum(range(3_000_000)), flush=True); import time; time.sleep(600)"
held = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
held.stdout.readline()

class Asked(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"result": []}')

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Asked).serve_forever()
"""


def lives(process):
    """Whether a process has memory: one that has ended may be there until somebody notices."""
    try:
        return "RssAnon:" in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


class Servers(unittest.TestCase):
    def test_all_processes_of_a_server_count(self):
        port = free_port()
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, "-c", FORKING, port]
            with Server(command, port, Path(scratch, "log")) as server:
                parent, child = tree(server.process.pid)
                self.assertEqual(parent, server.process.pid)
                self.assertGreater(server.memory_mib("RssAnon"), 64)
                self.assertGreater(server.memory_mib("VmRSS"), server.memory_mib("RssAnon"))
                self.assertGreater(server.cpu_s(), 0)
                server._kill()
                self.assertRaises(ProcessLookupError, server.memory_mib, "RssAnon")
            until = time.monotonic() + 30
            while lives(child) and time.monotonic() < until:
                time.sleep(0.01)
            self.assertFalse(lives(child))

    def test_every_worker_is_warm_before_it_is_measured(self):
        asked = []

        def load(server, connections, seconds):
            asked.append(seconds)
            return {"statuses": {"200": 500}}

        cores = len(os.sched_getaffinity(0))
        module(Path("bench/server/benchmark.py")).warm(None, load, {"warm": 2000, "seconds": 8})
        self.assertEqual(asked, [3] * 4 * cores)


if __name__ == "__main__":
    unittest.main()
