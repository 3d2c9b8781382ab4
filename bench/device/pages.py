"""Pages that CubeCL's allocator takes from the driver for a packed training step in bf16, by a model of both: pages.py [SHAPE] [...].

The allocator (cubecl-server 0.11: memory_management/dynamic/arena.rs) carves tensors out of pages of one size, the first that has room;
a tensor that is larger than a page begins pages of its size and a MiB, and pages of the old size go once they are empty. The step's
tensors come and go as in trainer/src/backward.rs and trainer/src/model/cube/layer.rs: two steps, since moments are made by the first. It
prints what is live at most, what the pages hold at most, and the difference, of which trainer/src/memory/card.rs counts a page and a
sixteenth of what is live. Activations are kept of as many layers as leave a sixth of the card free by that count, as in
trainer/src/memory/kept.rs.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "gpu"))
from roofline import SHAPES  # noqa: E402

MIB = 2**20
NORMED = {"Qwen3-0.6B", "Qwen3-4B"}
SMALL, LOGITS = 64 << 10, 1 << 28
RUNTIME, KEPT = 1 << 30, 96 << 20


class Arena:
    def __init__(self):
        self.pools, self.places = [(2 * MIB, [])], {}
        self.live = self.most_live = self.taken = self.most_taken = 0

    def take(self, name, size):
        assert name not in self.places, name
        self.live += size
        self.most_live = max(self.most_live, self.live)
        self.places[name] = (None, size)
        if size <= SMALL:
            return
        room = -(-size // 256) * 256
        for page_size, pages in self.pools[:-1]:
            kept = [page for page in pages if any(slot[1] for slot in page)]
            self.taken -= (len(pages) - len(kept)) * page_size
            pages[:] = kept
        self.pools = [pool for pool in self.pools[:-1] if pool[1]] + self.pools[-1:]
        if room > self.pools[-1][0]:
            self.pools.append((-(-(room + MIB) // MIB) * MIB, []))
        page_size, pages = self.pools[-1]
        for page in pages:
            at = 0
            while at + 1 < len(page):
                if page[at][1] or page[at + 1][1]:
                    at += 1
                else:
                    page[at][0] += page.pop(at + 1)[0]
            for at, slot in enumerate(page):
                if not slot[1] and slot[0] >= room:
                    return self.fill(page, at, name, room, size)
        pages.append([[page_size, False]])
        self.taken += page_size
        self.most_taken = max(self.most_taken, self.taken)
        self.fill(pages[-1], 0, name, room, size)

    def fill(self, page, at, name, room, size):
        slot = page[at]
        if slot[0] > room:
            page.insert(at + 1, [slot[0] - room, False])
        slot[:] = [room, True]
        self.places[name] = (slot, size)

    def free(self, *names):
        for name in names:
            slot, size = self.places.pop(name)
            self.live -= size
            if slot:
                slot[1] = False

    def rename(self, old, new):
        self.places[new] = self.places.pop(old)


class Step:
    def __init__(self, chosen, whole=None):
        depth, self.h, self.i, heads, kv_heads, dim, self.v, _ = SHAPES[chosen.shape]
        self.heads, self.q, self.k = heads, heads * dim, kv_heads * dim
        self.depth, self.n, self.longest = chosen.layers or depth, chosen.tokens, chosen.longest
        self.normed, self.w = chosen.shape in NORMED, self.q + 2 * self.k
        targets = sum(place % 5 in (2, 3) for place in range(self.longest)) * (self.n // self.longest)
        at_once = LOGITS // self.v
        self.targets, self.chunks = targets, [min(at_once, targets - start) for start in range(0, targets, at_once)]
        activations = (self.w * (2 if self.normed else 1) + self.h + 2 * self.i) * self.n * 2
        self.whole = min(KEPT // activations, self.depth) if whole is None else whole
        self.arena, self.dim = Arena(), dim

    def matrices(self, layer):
        h, i = self.h, self.i
        sizes = {"q": h * self.q, "k": h * self.k, "v": h * self.k, "o": self.q * h, "gate": h * i, "up": h * i, "down": h * i}
        return {f"{layer}.{name}": size for name, size in sizes.items()}

    def parameters(self):
        found = {"embed": self.v * self.h}
        for layer in range(self.depth):
            found |= self.matrices(layer)
        return found

    def copy(self):
        a = self.arena
        for name, size in self.parameters().items():
            a.take(f"copy.{name}", size * 2)
        for layer in range(self.depth):
            a.take(f"copy.{layer}.qkv", self.h * self.w * 2)
            a.take(f"copy.{layer}.both", self.h * self.i * 4)
            a.free(*(f"copy.{layer}.{name}" for name in ("q", "k", "v", "gate", "up")))
            for name, size in (("o", self.q * self.h), ("down", self.h * self.i)):
                a.take(f"copy.{layer}.{name} by output", size * 2)
                a.free(f"copy.{layer}.{name}")

    def rotated(self, layer):
        a, n = self.arena, self.n * 2
        a.take("x", n * self.h)
        a.take(f"{layer}.both", n * self.w)
        a.free("x")
        for name, width in (("Q", self.q), ("K", self.k), ("V", self.k)):
            a.take(f"{layer}.{name}", n * width)
        if not self.normed:
            a.free(f"{layer}.both")

    def gated(self, layer):
        a, n = self.arena, self.n * 2
        a.take("attended", n * self.h)
        a.take(f"{layer}.stream", n * self.h)
        a.take("x", n * self.h)
        a.free("attended")
        a.take(f"{layer}.gated", n * 2 * self.i)
        a.free("x")

    def kept(self, layer):
        return [f"{layer}.{name}" for name in ("Q", "K", "V", "stream", "gated") + (("both",) if self.normed else ())]

    def forward(self):
        a, n = self.arena, self.n * 2
        a.take("input 0", n * self.h)
        for layer in range(self.depth):
            self.rotated(layer)
            a.take(f"{layer}.mixed", n * self.q)
            a.take(f"{layer}.stats", self.n * self.heads * 8)
            self.gated(layer)
            a.take("activation", n * self.i)
            a.take(f"input {layer + 1}", n * self.h)
            a.free("activation")
            if layer < self.depth - self.whole:
                a.free(*self.kept(layer))

    def head(self):
        a, row = self.arena, self.h * 2
        a.take("grad", self.n * row)
        a.take("last", self.targets * row)
        a.free(f"input {self.depth}")
        a.take("picked", self.targets * row)
        whole = len(self.chunks) == 1
        for count in self.chunks:
            a.take("logits", count * self.v * 4)
            if not whole:
                a.free("logits")
        for index, count in enumerate(self.chunks):
            if not whole:
                a.take("logits", count * self.v * 4)
            a.take("by logits", count * self.v * 2)
            a.free("logits")
            a.take("rounded", self.v * row)
            a.take("by head", self.v * row * 2)
            a.free("rounded")
            if index:
                a.free("by head")
            else:
                a.rename("by head", "grad.embed")
            a.take(f"part {index}", count * row)
            a.free("by logits")
        a.take("parts", self.targets * row)
        a.free("picked", *(f"part {index}" for index in range(len(self.chunks))))
        a.take("by last", self.targets * row)
        a.free("parts", "last", "by last")

    def backward(self, layer):
        a, h, i, n = self.arena, self.h, self.i, self.n * 2
        again = layer < self.depth - self.whole
        if again:
            self.gated(layer)
        a.take("sums", 512 * (2 * h + self.w * (2 if self.normed else 1)) * 4)
        a.take("by activation", n * i)
        a.take("by gated", n * 2 * i)
        a.take("activation", n * i)
        a.free("by activation", f"{layer}.gated")
        a.take(f"grad.{layer}.down", h * i * 4)
        a.free("activation")
        for name in ("by x", "by stream", "x"):
            a.take(name, n * h)
        a.free("by x", "grad", f"{layer}.stream")
        a.take(f"grad.{layer}.both", h * i * 8)
        a.free("x", "by gated")
        a.take("by mixed", n * self.q)
        a.take(f"grad.{layer}.o", self.q * h * 4)
        if again:
            self.rotated(layer)
        for name, width in (("by Q", self.q), ("by K", self.k), ("by V", self.k)):
            a.take(name, n * width)
        a.free(f"{layer}.Q", f"{layer}.K", f"{layer}.V", f"{layer}.mixed", f"{layer}.stats", "by mixed")
        a.take("by both", n * self.w)
        a.free("by Q", "by K", "by V", *([f"{layer}.both"] if self.normed else []))
        for name in ("by x", "grad", "x"):
            a.take(name, n * h)
        a.free("by x", "by stream", f"input {layer}")
        a.take(f"grad.{layer}.qkv", h * self.w * 4)
        a.free("x", "by both", "sums")

    def update(self, first):
        a = self.arena
        for layer in range(self.depth):
            matrices = self.matrices(layer)
            for joined, names in (("both", ("gate", "up")), ("qkv", ("q", "k", "v"))):
                for name in names:
                    a.take(f"grad.{layer}.{name}", matrices[f"{layer}.{name}"] * 4)
                a.free(f"grad.{layer}.{joined}")
        for size in self.parameters().values():
            a.take("squares", size * 4)
            a.free("squares")
        a.free(*[name for name in a.places if name.startswith("copy.")])
        for name, size in self.parameters().items():
            if first:
                a.take(f"first.{name}", size * 4)
                a.take(f"second.{name}", size * 4)
            a.free(f"grad.{name}")

    def run(self):
        a = self.arena
        for name, size in self.parameters().items():
            a.take(name, size * 4)
        a.take("angles", self.longest * self.dim * 4)
        self.copy()
        for first in (True, False):
            self.forward()
            self.head()
            for layer in reversed(range(self.depth)):
                self.backward(layer)
            a.free("grad")
            self.update(first)
            self.copy()
        return a


def counted(arena):
    """What an estimate counts for these tensors."""
    return arena.most_live * 17 / 16 + arena.pools[-1][0]


def fitting(chosen):
    """The step with as many layers kept as the card has room for, and its pages."""
    for whole in range(chosen.layers or SHAPES[chosen.shape][0], -1, -1):
        step = Step(chosen, whole)
        arena = step.run()
        if RUNTIME + counted(arena) <= chosen.card * MIB * 5 / 6:
            return step, arena
    step = Step(chosen)
    return step, step.run()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", nargs="?", choices=[name for name in SHAPES if "Qwen" in name], help="all by default")
    parser.add_argument("--layers", type=int, help="all by default")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument("--card", type=int, default=143771, help="MiB of its memory")
    chosen = parser.parse_args()
    shapes = [chosen.shape] if chosen.shape else [name for name in SHAPES if "Qwen" in name]
    print("| shape | layers | kept | live, MiB | pages, MiB | not filled | of one page | a page and a sixteenth |")
    print("|---" * 8 + "|")
    for chosen.shape in shapes:
        step, arena = fitting(chosen)
        live, taken, page = arena.most_live, arena.most_taken, arena.pools[-1][0]
        print(f"| {chosen.shape} | {step.depth} | {step.whole} | {live / MIB:.0f} | {taken / MIB:.0f} | "
              f"{taken / live - 1:.1%} | {(taken - live) / page:.1f} | "
              f"{counted(arena) / taken - 1:+.1%} |")


if __name__ == "__main__":
    main()
