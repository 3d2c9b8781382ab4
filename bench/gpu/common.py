"""Shapes of the GPU benches, and how their programs are run."""

import json
import subprocess
import sys
import threading
import time

SHAPES = {
    "Qwen2.5-0.5B": dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                         num_key_value_heads=2, vocab_size=151936),
    "Qwen2.5-3B": dict(hidden_size=2048, intermediate_size=11008, num_hidden_layers=36, num_attention_heads=16,
                       num_key_value_heads=2, vocab_size=151936),
}


def used_mib():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True).stdout.split()[0])


def run(command):
    """The line of JSON a program prints and the most memory the GPU held meanwhile; None when it failed."""
    most, done = [0], threading.Event()

    def watch():
        while not done.is_set():
            most[0] = max(most[0], used_mib())
            time.sleep(0.2)

    watcher = threading.Thread(target=watch)
    watcher.start()
    process = subprocess.run(command, capture_output=True, text=True)
    done.set()
    watcher.join()
    if process.returncode != 0:
        print(process.stderr[-2000:], file=sys.stderr)
        return None, most[0]
    return json.loads(process.stdout.splitlines()[-1]), most[0]
