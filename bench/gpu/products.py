"""Products of matrices of Qwen2.5-3B by each kernel that forage has for them, and by torch (cuBLAS) beside them.

products.py FORAGE RESULTS [PYTHON] [--minutes N]

What the kernels of trainer/src/model/cube/product.rs are chosen by. Each kernel of each product is compiled first, several products
at once; then one product after the other is timed. RESULTS gets products.jsonl (a line for each product and kernel) and products.md.
The sizes are those of decode steps of 64 sequences and of one, of passes of 8,192 tokens, of the gradients of all weights and of an
adapter of rank 16, and of the head. FORAGE is built with --features cuda; PYTHON has torch with CUDA.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

from jobs import DEVICE, HERE
from machine import cuda_environment, nvidia_smi

HIDDEN, QKV, INNER, VOCABULARY = 2048, 2560, 11008, 151_936
PASS, CHUNK, RANKS = 8192, 1024, 48
# Differences to f64 from which on a result is wrong and not rounded.
WRONG = 0.02
# Kernels of a name with one of these parts.
ONE_ROW = "vecmat,gemm,simple_cyclic"
ROWS = "simple_cyclic,ordered,double_cyclic,double_tma,specialized,simple_tma,gemm"


def forward(rows):
    return [
        (rows, QKV, HIDDEN, "rc", "bf16"),
        (rows, HIDDEN, HIDDEN, "rc", "bf16"),
        (rows, 2 * INNER, HIDDEN, "rc", "bf16"),
        (rows, HIDDEN, INNER, "rc", "bf16"),
    ]


GRADIENTS = [
    (PASS, HIDDEN, 2 * INNER, "rr", "bf16"),
    (PASS, INNER, HIDDEN, "rr", "bf16"),
    (HIDDEN, 2 * INNER, PASS, "cr", "bf16-f32"),
    (INNER, HIDDEN, PASS, "cr", "bf16-f32"),
]
ADAPTER = [
    (PASS, RANKS, HIDDEN, "rr", "bf16"),
    (PASS, QKV, RANKS, "rr", "bf16"),
    (HIDDEN, RANKS, PASS, "cr", "bf16-f32"),
    (RANKS, QKV, PASS, "cr", "bf16-f32"),
]
HEAD = [
    (64, VOCABULARY, HIDDEN, "rc", "bf16"),
    (CHUNK, VOCABULARY, HIDDEN, "rc", "bf16-f32"),
    (CHUNK, HIDDEN, VOCABULARY, "rr", "bf16"),
]
# What is wanted most, for the machine may go away.
PRODUCTS = [*forward(64), *forward(PASS), *HEAD, *GRADIENTS, *ADAPTER, *forward(1), *forward(256)]


def name(product):
    return ":".join(map(str, product))


def lines(text):
    """What a program printed of kernels. The last line of one that was stopped may not be whole."""
    rows = (json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}"))
    return [row["found"] | {"product": row["product"]} for row in rows]


def ours(forage, product, results, cuda, limit):
    """What the kernels did, of as many as were done within so many seconds. Compiled ones are kept for the next call."""
    cache = results / "scratch" / name(product).replace(":", "-")
    cache.mkdir(parents=True, exist_ok=True)
    command = [forage, "bench", "products", name(product), "--device", DEVICE]
    command += ["--only", ONE_ROW if product[0] == 1 else ROWS]
    environment = os.environ | cuda | {"XDG_CACHE_HOME": str(cache)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired as fault:
        return lines((fault.stdout or b"").decode())
    if done.returncode:
        print(f"{name(product)} ended with {done.returncode}: {done.stderr[-500:]}", file=sys.stderr)
    return lines(done.stdout)


def peers(python, products):
    command = [python, str(HERE / "peer_products.py"), *map(name, products)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: the peer ended with {done.returncode}: {done.stderr[-500:]}")
    return lines(done.stdout)


def tera(product, micros):
    rows, columns, inner, *_ = product
    return 2 * rows * columns * inner / micros / 1e6


def right(row):
    return row["refused"] is None and row["error"] is not None and row["error"] <= WRONG


def table(found, card):
    yield f"{card}. Off: the largest difference to f64, relative to the largest number."
    yield ""
    yield "| product | chosen kernel | us | TFLOP/s | off | fastest kernel | us | torch, us | chosen / torch |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for product in PRODUCTS:
        rows = [row for row in found if row["product"] == name(product)]
        torch = next((row["micros"] for row in rows if row["kernel"] == "torch"), None)
        kernels = [row for row in rows if row["kernel"] != "torch" and right(row)]
        if not kernels:
            continue
        best = min(kernels, key=lambda row: row["micros"])
        cells = [f"`{name(product)}`"]
        chosen = next((row for row in kernels if row["chosen"]), None)
        if chosen:
            micros = chosen["micros"]
            cells += [chosen["kernel"], f"{micros:.1f}", f"{tera(product, micros):.0f}"]
            cells.append(f"{chosen['error']:.1e}")
        else:
            cells += ["", "", "", ""]
        cells += [best["kernel"], f"{best['micros']:.1f}", f"{torch:.1f}" if torch else ""]
        cells.append(f"{torch / chosen['micros']:.2f}" if torch and chosen else "")
        yield f"| {' | '.join(cells)} |"
    wrong = [row for row in found if row["kernel"] != "torch" and row["refused"] is None and not right(row)]
    if wrong:
        yield ""
        yield "Wrong results: " + ", ".join(f"{row['kernel']} of `{row['product']}`" for row in wrong) + "."


def main():
    begin = time.monotonic()
    parser = argparse.ArgumentParser(prog="products.py", allow_abbrev=False)
    parser.add_argument("forage", metavar="FORAGE")
    parser.add_argument("results", metavar="RESULTS", type=pathlib.Path)
    parser.add_argument("python", metavar="PYTHON", nargs="?")
    parser.add_argument("--minutes", type=float, default=5, help="how long the call may take (default 5)")
    arguments = parser.parse_args()
    end = begin + arguments.minutes * 60
    forage, results = str(pathlib.Path(arguments.forage).resolve()), arguments.results.resolve()
    results.mkdir(parents=True, exist_ok=True)
    cuda, told = cuda_environment(arguments.python)
    found = peers(arguments.python, PRODUCTS) if arguments.python else []
    # Half of the time is for compiling.
    compiled = begin + arguments.minutes * 30

    def until(moment, product):
        left = moment - time.monotonic()
        return ours(forage, product, results, cuda, left) if left > 0 else []

    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 2) - 1)) as pool:
        list(pool.map(lambda product: until(compiled, product), PRODUCTS))
    for product in PRODUCTS:
        found += until(end, product)
    (results / "products.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    card = ", driver ".join(nvidia_smi("name,driver_version") or ["a GPU without a name"])
    card += f", NVRTC `{told['nvrtc']}`"
    text = "\n".join(table(found, card)) + "\n"
    (results / "products.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
