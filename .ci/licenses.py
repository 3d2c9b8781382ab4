#!/usr/bin/env python3
"""Collects the licence texts of every crate in the program and in the sandbox's interpreter: .ci/licenses.py [--check]

Writes cli/licenses/crates.txt.gz, which `forage licenses` prints. With --check it writes nothing and fails where the file has another
text. A text that several crates share stands once, with their names above it.
"""

import collections
import difflib
import gzip
import itertools
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "cli/licenses/crates.txt.gz"
# Manifest, package, target, features: the program with the devices that it can have on Linux contains the one without them.
TARGETS = [
    ("Cargo.toml", "forage", "x86_64-unknown-linux-gnu", "forage/cuda,forage/wgpu"),
    ("sandbox/guest/Cargo.toml", "forage-guest", "wasm32-wasip1", ""),
]
LICENCE = re.compile(r"(?i)(licen[cs]e|copying|notice|unlicense|copyright)")


def crates(manifest, root, target, features):
    """The published crates that the code of a package is made of."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target, "--features", features]
    found = json.loads(subprocess.check_output([*command, "--manifest-path", ROOT / manifest]))
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    open_ = [identity for identity, package in packages.items() if package["name"] == root]
    seen = set()
    while open_:
        identity = open_.pop()
        if identity in seen:
            continue
        seen.add(identity)
        for dependency in nodes[identity]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                open_.append(dependency["pkg"])
    return [packages[identity] for identity in seen if packages[identity]["source"]]


def collected(found):
    """The text of all licences, and how many there are."""
    # Once each, whatever versions of a crate there are: their order is that of the lines.
    texts, without = collections.defaultdict(dict), {}
    for package in sorted(found.values(), key=lambda package: (package["name"], package["id"])):
        folder = pathlib.Path(package["manifest_path"]).parent
        files = sorted(path for path in folder.iterdir() if path.is_file() and LICENCE.match(path.name))
        line = f"  {package['name']} ({package['license'] or package['license_file']}) {package['repository'] or ''}".rstrip()
        for path in files:
            text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip()
            texts[text][line] = None
        if not files:
            without[f"{line} by {', '.join(package['authors']) or 'its authors'}"] = None
    parts = ["These crates bring no file with their licence; its usual text holds:\n\n" + "\n".join(without)]
    for text, lines in sorted(texts.items(), key=lambda entry: [*entry[1]]):
        parts.append("\n".join(lines) + "\n\n" + text)
    return ("\n\n" + "-" * 80 + "\n\n").join(parts) + "\n", len(texts)


def main():
    found = {package["id"]: package for target in TARGETS for package in crates(*target)}
    whole, count = collected(found)
    if sys.argv[1:] != ["--check"]:
        OUT.write_bytes(gzip.compress(whole.encode(), 9, mtime=0))
        print(f"{OUT}: {len(found)} crates, {count} texts, {OUT.stat().st_size} bytes")
        return
    kept = gzip.decompress(OUT.read_bytes()).decode()
    if kept != whole:
        lines = difflib.unified_diff(kept.splitlines(), whole.splitlines(), OUT.name, "the crates", n=0, lineterm="")
        print(*itertools.islice(lines, 20), sep="\n")
        sys.exit(f"{OUT.name} is not what the crates say: run .ci/licenses.py")


main()
