"""What bench/vllm starts ends with it."""

import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from harness.declare import ROOT
from harness.tests.test_servers import lives

# Exports a model, or trains for ever.
FORAGE = """#!/bin/sh
case $1 in
  export) mkdir -p "$4"; echo '{"tie_word_embeddings": true}' >"$4/config.json" ;;
  train) echo $$ >"$WORK/train.process"; exec sleep 600 ;;
esac
"""
# Answers whether it is there.
ENGINE = f"""#!{sys.executable}
import http.server, os, pathlib, sys

class Asked(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

# The port is the case's, and this test may run twice at once.
http.server.HTTPServer.allow_reuse_port = True
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Asked)
pathlib.Path(os.environ["WORK"], "serve.process").write_text(f"{{os.getpid()}}\\n")
server.serve_forever()
"""


class Vllm(unittest.TestCase):
    def test_a_script_that_is_ended_leaves_nothing_running(self):
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            for name, text in (("forage", FORAGE), ("vllm", ENGINE)):
                (work / name).write_text(text)
                (work / name).chmod(0o755)
            # What makes models with an untied head, which the case that is asked for does without.
            (work / "safetensors").mkdir()
            (work / "safetensors/torch.py").write_text("load_file = save_file = None\n")
            command = [sys.executable, "-B", ROOT / "bench/vllm/run.py", work / "forage", work, "vllm", work / "vllm", "killed"]
            given = os.environ | {"WORK": folder, "PYTHONPATH": folder}
            script = subprocess.Popen(command, cwd=ROOT, env=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until = time.monotonic() + 60
            started = [work / "serve.process", work / "train.process"]
            while not all(path.exists() and path.read_text() for path in started):
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            script.terminate()
            self.assertNotEqual(script.wait(), 0)
            # A busy machine takes a moment to end a process that was told to.
            until = time.monotonic() + 60
            while left := [path.name for path in started if lives(int(path.read_text()))]:
                self.assertLess(time.monotonic(), until, left)
                time.sleep(0.01)


if __name__ == "__main__":
    unittest.main()
