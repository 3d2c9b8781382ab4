"""A model of a training step of `search_r1_v02` on 1 to 64 GPUs: seconds by phase, and which phase is the longest.

scale.py [SHAPE] [--card CARD] [...]: a Markdown table. Counted: launches per layer and step of decoding and of training
(`bench/device/run.sh`), bytes and operations by the shape (`roofline.py`). From data sheets: bandwidth of memory, rate of bf16
products, NVLink within a node of eight, one network card per GPU between nodes. Assumed, and to be changed by an option: the tokens
of an episode, the shares of rate and bandwidth that are reached, the time of a launch, the queries per second of one retrieval
server. Groups are dealt to GPUs, gradients are summed over them in f32, moments are sharded (ZeRO-1), and all of it travels by NVLink
or the network card. Forage sums gradients so within one machine alone, and brings the weights of a sharded optimizer to the other GPUs
through the processor: the rows beyond the first say what sums and weights on the links would give.

Memory is counted as `forage train --dry-run` counts it where no card has room for kept activations: at the largest of the moments of a
packed micro-batch in bf16, beside the sum of the gradients of those before. A card is too small where more than 95 % of it is needed.
"""

import argparse

from roofline import CARDS, HALF, SHAPES, SHEETS, phases

GIB = 2**30
GB = 10**9
MEMORY = {card["name"]: card["memory_gb"] for card in SHEETS["cards"]}
# GB/s of a GPU to the others of its node, and to other nodes.
NVLINK = {card["name"]: card["link_gb"] for card in SHEETS["cards"]}
ASSUMED = SHEETS["assumed"]
NETWORK = ASSUMED["network_gb"]
NODE = 8


def numbers(shape):
    """Weights, all and of the layers alone."""
    layers, hidden, intermediate, heads, kv_heads, dim, vocabulary, tied = SHAPES[shape]
    inner = layers * (hidden * (2 * heads + 2 * kv_heads) * dim + 3 * hidden * intermediate)
    return inner + vocabulary * hidden * (1 if tied else 2), inner


def micro_batch(chosen):
    """Bytes that a micro-batch of policy tokens holds at most, and the bytes of a page: trainer/src/memory/card.rs."""
    layers, hidden, intermediate, heads, kv_heads, dim, vocabulary, tied = SHAPES[chosen.shape]
    everything, inner = numbers(chosen.shape)
    tokens, queries, head = chosen.micro_batch_tokens, heads * dim, vocabulary * hidden * 4
    # Of each layer its input, what attention made of it and two numbers of every row and head.
    kept = tokens * (layers * (hidden + queries) + hidden) * HALF + layers * tokens * heads * 2 * 4
    joined = queries + 2 * kv_heads * dim
    layer = tokens * max(6 * intermediate + 4 * hidden + queries, 4 * hidden + queries + 4 * joined) * HALF
    at_once = max(1, min(MEMORY[chosen.card] * GB // 512, 2**28) // vocabulary)
    logits = min(tokens, at_once) * vocabulary
    picked = 3 * tokens * hidden * HALF
    earlier = head if tokens > at_once else 0
    # Beside the sum: the head's gradient until its end, one layer's, and the embedding's, which is the head's where it is tied.
    moments = (
        kept + logits * (4 + HALF) + picked + earlier,
        kept + logits * HALF + picked + head + earlier + head // 2,
        kept + layer + inner // layers * 4 + (head if tied else 0),
        tokens * hidden * 4 + head,
    )
    page = max(head, 2 * tokens * intermediate * HALF, 2 * hidden * intermediate * 4, chosen.cache_gib * GIB / (2 * layers))
    return everything * 4 + max(moments), page


def step(chosen, gpus):
    """Seconds of the phases on so many GPUs, and bytes that one holds."""
    layers, hidden, _, heads, kv_heads, dim, vocabulary, _ = SHAPES[chosen.shape]
    bandwidth, rate = CARDS[chosen.card][0] * 1e12 * chosen.bandwidth_share, CARDS[chosen.card][1] * 1e12 * chosen.rate_share
    everything, _ = numbers(chosen.shape)
    episodes = chosen.questions * chosen.group / gpus
    searches = chosen.turns - 1
    written, read = chosen.turns * chosen.turn_tokens, searches * chosen.observation_tokens
    length = chosen.prompt_tokens + written + read

    # As many as the cache has room for.
    cached = chosen.cache_gib * GIB / (layers * 2 * kv_heads * dim * HALF * length)
    rows = min(chosen.sequences, episodes, max(1, cached))
    parts = phases(chosen.shape, rows, length / 2)
    decode = sum(max(moved / bandwidth, operations / rate) for moved, operations in parts.values())
    decode = max(decode, layers * ASSUMED["decode_launches"] * chosen.launch_us * 1e-6)
    # The last episodes have the card for themselves: a turn of the longest kind.
    alone = sum(moved for moved, _ in phases(chosen.shape, 1, length).values()) / bandwidth
    decoding = episodes * written / rows * decode + chosen.longest_turn * alone
    # A group's prompt once; attention of what is read to what stands before it.
    prompt = chosen.prompt_tokens / chosen.group
    attention = 4 * layers * heads * dim * (length / 2)
    prefill = episodes * (prompt + read) * (2 * everything + attention) / rate
    search = chosen.questions * chosen.group * searches / chosen.queries_per_second

    tokens = episodes * (prompt + written + read)
    # Forwards and back, forwards again for old log-probabilities and for the reference of the penalty.
    update = tokens * (6 + 2 + 2) * everything / rate + tokens * 5 * attention / rate
    batches = max(1, tokens / chosen.micro_batch_tokens)
    update = max(update, batches * layers * ASSUMED["training_launches"] * chosen.launch_us * 1e-6)
    # Gradient, weight and two moments read, weight, moments and the copy in bf16 written.
    optimizer = chosen.updates * everything * (16 + 12 + 2) / gpus / (CARDS[chosen.card][0] * 1e12)
    link = (NVLINK[chosen.card] if gpus <= NODE else NETWORK) * 1e9
    # The gradient twice, the updated weights once, all in f32.
    travelled = everything * (4 + 4 + 4) * (gpus - 1) / gpus
    reduced = chosen.updates * travelled / link

    # Weights, the copies in bf16 of updates, engine and reference, moments, and gradients with what a micro-batch holds.
    most, page = micro_batch(chosen)
    held = everything * (4 + 3 * HALF + 8 / gpus) + chosen.cache_gib * GIB + most
    # Pages that are not filled: a sixteenth, and one page of the largest tensor; then what the driver takes.
    held += held / 16 + page + GIB
    return {"decode": decoding, "prefill": prefill, "search": search, "update": update, "optimizer": optimizer, "gradients": reduced}, held


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", nargs="?", default="Qwen2.5-3B", choices=SHAPES)
    parser.add_argument("--card", default="H100", choices=CARDS)
    recipe = parser.add_argument_group("of the recipe")
    recipe.add_argument("--questions", type=int, default=512)
    recipe.add_argument("--group", type=int, default=5)
    recipe.add_argument("--updates", type=int, default=10)
    recipe.add_argument("--sequences", type=int, default=256)
    recipe.add_argument("--micro-batch-tokens", type=int, default=16384)
    recipe.add_argument("--cache-gib", type=float, default=32)
    assumed = parser.add_argument_group("assumed")
    assumed.add_argument("--prompt-tokens", type=float, default=ASSUMED["prompt_tokens"])
    assumed.add_argument("--turns", type=float, default=ASSUMED["turns"], help="the last one answers, the others search")
    assumed.add_argument("--turn-tokens", type=float, default=ASSUMED["turn_tokens"])
    assumed.add_argument("--longest-turn", type=float, default=ASSUMED["longest_turn"])
    assumed.add_argument("--observation-tokens", type=float, default=ASSUMED["observation_tokens"])
    assumed.add_argument("--bandwidth-share", type=float, default=ASSUMED["bandwidth_share"])
    assumed.add_argument("--rate-share", type=float, default=ASSUMED["rate_share"])
    assumed.add_argument("--launch-us", type=float, default=ASSUMED["launch_us"])
    assumed.add_argument("--queries-per-second", type=float, default=500)
    chosen = parser.parse_args()
    print(f"{chosen.shape} on {chosen.card}, {chosen.questions} x {chosen.group} episodes, seconds of a step:\n")
    names = list(step(chosen, 1)[0])
    print(f"| GPUs | {' | '.join(names)} | step | days for 1,005 steps | longest | GB of {MEMORY[chosen.card]} |")
    print("|---" * (len(names) + 5) + "|")
    for gpus in (1, 2, 4, 8, 16, 32, 64):
        parts, held = step(chosen, gpus)
        total = sum(parts.values())
        longest = max(parts, key=parts.get)
        room = f"{held / GB:.0f}" + ("" if held / GB < MEMORY[chosen.card] * 0.95 else ", too much")
        cells = " | ".join(f"{seconds:.1f}" for seconds in parts.values())
        print(f"| {gpus} | {cells} | {total:.0f} | {total * 1005 / 86400:.1f} | {longest} | {room} |")


if __name__ == "__main__":
    main()
