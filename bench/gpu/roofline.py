"""The time that a decode step cannot beat, phase by phase, from the shape of a model and the data sheet of a card.

roofline.py [SHAPE] [--sequences N] [--context N]: a Markdown table. A phase takes the longer of two times: its bytes at the
card's bandwidth, its products at the card's rate in bf16 (dense). Weights and cache are bf16, logits f32. Every token of a context
counts as one of its own: prefixes that sequences share would be read less often.
"""

import argparse
import json
import pathlib

# NVIDIA's data sheets and what they do not say: `forage train --dry-run` reads the same file.
SHEETS = json.loads((pathlib.Path(__file__).parents[2] / "lab/src/cards.json").read_text())
# Bandwidth in TB/s and bf16 products in TFLOP/s.
CARDS = {card["name"]: (card["bandwidth_tb"], card["bf16_tflops"]) for card in SHEETS["cards"]}
# Layers, hidden, intermediate, heads, key heads, head dimension, vocabulary, tied.
SHAPES = {
    "Qwen2.5-0.5B": (24, 896, 4864, 14, 2, 64, 151936, True),
    "Qwen2.5-3B": (36, 2048, 11008, 16, 2, 128, 151936, True),
    "Qwen2.5-7B": (28, 3584, 18944, 28, 4, 128, 152064, False),
    "Qwen3-0.6B": (28, 1024, 3072, 16, 8, 128, 151936, True),
    "Qwen3-4B": (36, 2560, 9728, 32, 8, 128, 151936, True),
    "Llama-3.1-8B": (32, 4096, 14336, 32, 8, 128, 128256, False),
}
HALF = 2  # bytes of a bf16
FULL = 4  # bytes of an f32


def phases(shape, sequences, context):
    """Bytes and operations of the phases of one decode step."""
    layers, hidden, intermediate, heads, kv_heads, dim, vocabulary, _ = SHAPES[shape]
    weights = layers * (hidden * (2 * heads + 2 * kv_heads) * dim + 3 * hidden * intermediate)
    cache = layers * sequences * context * 2 * kv_heads * dim
    logits = sequences * vocabulary
    return {
        "layers' weights": (weights * HALF, 2 * weights * sequences),
        "attention over the cache": (cache * HALF, 4 * layers * sequences * context * heads * dim),
        "head": (vocabulary * hidden * HALF + logits * FULL, 2 * vocabulary * hidden * sequences),
        # The logits are read twice: for the sums of the softmax and for the draw.
        "sampling": (2 * logits * FULL, 0),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", nargs="?", default="Qwen2.5-3B", choices=SHAPES)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--context", type=int, default=1024)
    chosen = parser.parse_args()
    parts = phases(chosen.shape, chosen.sequences, chosen.context)
    print(f"{chosen.shape}, {chosen.sequences} sequences of {chosen.context} tokens, one decode step, ms:\n")
    print(f"| phase | MB | {' | '.join(CARDS)} |")
    print("|---|---|" + "---|" * len(CARDS))
    totals = dict.fromkeys(CARDS, 0.0)
    for name, (moved, operations) in parts.items():
        cells = []
        for card, (bandwidth, rate) in CARDS.items():
            ms = max(moved / bandwidth / 1e9, operations / rate / 1e9)
            totals[card] += ms
            cells.append(f"{ms:.3f}")
        print(f"| {name} | {moved / 1e6:.0f} | {' | '.join(cells)} |")
    megabytes = sum(moved for moved, _ in parts.values()) / 1e6
    print(f"| step | {megabytes:.0f} | {' | '.join(f'{ms:.3f}' for ms in totals.values())} |")
    rates = (f"{chosen.sequences / ms * 1e3:,.0f}" for ms in totals.values())
    print(f"| tokens/s, at most | | {' | '.join(rates)} |")
    print(f"| tokens/s, measured | | {' | '.join('' for _ in CARDS)} |")


if __name__ == "__main__":
    main()
