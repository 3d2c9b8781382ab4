"""The generated blocks of the documents, between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`: tables, pictures, aims, where and when."""

import datetime
import json
import re

from harness import measure, picture
from harness.declare import BenchError, Cell, load, names

MARKER = re.compile(r"^<!-- (/?)bench:([a-z0-9-]+) -->$", re.M)


def results(root):
    """The folder of results."""
    return root / "bench/results"


def shown(value, decimals):
    text = f"{value:,.{decimals}f}"
    return "0" if value == 0 else text if float(text.replace(",", "")) != 0 else f"{value:.1e}"


def pictures(root):
    """The folder of the pictures that documents show."""
    return root / "docs/pictures"


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table(head, lines):
    return "\n".join([row(head), "|" + "---|" * len(head), *map(row, lines)])


def checked(name, benchmark, result):
    """The result, if it is what the observations in its rounds come to by this declaration."""
    observed = [figure.name for figure in benchmark.figures if figure.of is None]
    if set(result["figures"]) != {figure.name for figure in benchmark.figures}:
        raise _other(name, ["figures"])
    values = zip(*(result["figures"][figure]["rounds"] for figure in observed))
    rounds = [measure.figures(benchmark, dict(zip(observed, seen))) for seen in values]
    if len(rounds) != benchmark.rounds:
        raise _other(name, ["rounds"])
    taken = result["machine"]["others_at_most"]
    made = json.loads(json.dumps(measure.result(name, benchmark, benchmark.parameters, rounds, taken)))
    if other := [part for part, value in made.items() if result.get(part) != value]:
        raise _other(name, other)
    return result


def _other(name, parts):
    return BenchError(f"bench/results/{name}.json has other {', '.join(parts)} than the declaration; measure again: bench/run {name}")


def block(name, benchmark, result):
    """What stands between the markers."""
    if result is None:
        return f"`bench/run {name}` has not been run on a quiet machine yet.\n"
    found = checked(name, benchmark, result)["figures"]
    fill = lambda cell: shown(found[cell.figure]["median"] * cell.times, cell.decimals) if isinstance(cell, Cell) else cell
    parts = [table(made.head, [[fill(cell) for cell in line] for line in made.rows]) for made in benchmark.tables]
    parts += [f"![{curve.title}](pictures/{name}-{curve.name}.svg)" for curve in benchmark.curves]
    if result["aims"]:
        judged = result["held"] is not None
        parts.append(table(("aim", "bound", "measured", "held"), [_aim(aim, found, judged) for aim in result["aims"]]))
    return "\n\n".join([*parts, _where(name, benchmark, result)]) + "\n"


def drawn(name, benchmark, result):
    """The pictures of a result by the names of their files."""
    median = lambda figure: result["figures"][figure]["median"]
    lines = lambda curve: {words: [(x, median(figure)) for x, figure in line] for words, line in curve.lines.items()}
    return {
        f"{name}-{curve.name}.svg": picture.draw(curve.title, curve.axis, curve.unit, lines(curve))
        for curve in (benchmark.curves if result else ())
    }


def _aim(aim, found, judged):
    digits = lambda value: f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    figure, words = found[aim["figure"]], {">=": "at least", "<=": "at most"}
    spread = f"{digits(figure['median'])} ({digits(figure['min'])} to {digits(figure['max'])})"
    told = ("yes" if aim["held"] else "**no**") if judged else "not judged"
    return aim["about"], f"{words[aim['comparison']]} {digits(aim['bound'])}", spread, told


def _where(name, benchmark, result):
    place = result["machine"]
    day = datetime.date.fromisoformat(result["date"])
    peers = "".join(f", {peer} {version}" for peer, version in result["peers"].items()).removeprefix(", ")
    changed = " with changes" if result["changed"] else ""
    prebuilt = ", programs built before" if result["prebuilt"] else ""
    timed = any(figure.unit in ("min", "s") for figure in benchmark.figures)
    once = "one run, since all is seeded but its times" if timed else "one run, since nothing in it is timed and all is seeded"
    how = once if benchmark.exact else f"medians of {result['rounds']} rounds, sides by turns"
    busy = ""
    if place["others_at_most"] > measure.BUSY and (timed or not benchmark.exact):
        busy = " Its times are of a busy machine." if benchmark.exact else " On a busy machine, which shows nothing."
    same = f" Held in every round: {'; '.join(result['equalities'])}." if result["equalities"] else ""
    sizes = f" --sizes {','.join(result['parameters']['sizes'])}" if benchmark.part else ""
    return (
        f"`bench/run {name}{sizes}`, {how}: {place['cores']} cores of {place['cpu']}, {place['memory_gib']:g} GiB, load"
        f" {place['load_at_start']:g} at the start and {place['load_at_most']:g} at the most, {place['others_at_most']:g} cores taken by others"
        f" as rounds began, {day.day} {day:%B %Y}, commit {result['commit']}{changed}{prebuilt}.{busy}"
        f"{f' Beside {peers}.' if peers else ''}{same}"
    )


def update(check, root):
    """Writes every block and picture anew, or with `check` only compares; the files that differ."""
    places, wanted = {}, {}
    found = {name: _result(root, name) for name in names(root)}
    benchmarks = {name: _declared(root, name, result) for name, result in found.items()}
    for path in sorted((root / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        made, end, opened = [], 0, None
        for marker in MARKER.finditer(text):
            closing, name = marker[1] == "/", marker[2]
            line = f"{path.relative_to(root)}:{text.count(chr(10), 0, marker.start()) + 1}"
            if closing != (opened is not None) or (closing and name != opened):
                raise BenchError(f"{line}: the marker of `{name}` does not fit the one before")
            if name not in benchmarks:
                raise BenchError(f"{line}: no benchmark `{name}`: there are {', '.join(benchmarks)}")
            if closing:
                made.append(block(name, benchmarks[name], found[name]))
                end, opened = marker.start(), None
            else:
                if name in places:
                    raise BenchError(f"{line}: `{name}` stands in {places[name]} too")
                places[name], opened = line, name
                made.append(text[end : marker.end() + 1])
        if opened is not None:
            raise BenchError(f"{places[opened]}: no end of the block of `{opened}`")
        wanted[path] = "".join(made) + text[end:]
    if missing := sorted(set(benchmarks) - set(places)):
        raise BenchError(f"no document has a block of {', '.join(missing)}; add `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`")
    unknown = {path.stem for path in results(root).glob("*.json")} - set(benchmarks)
    if unknown:
        raise BenchError(f"bench/results has figures of no benchmark: {', '.join(sorted(unknown))}")
    for name, result in found.items():
        wanted |= {pictures(root) / file: text for file, text in drawn(name, benchmarks[name], result).items()}
    wanted |= {path: None for path in pictures(root).glob("*.svg") if path not in wanted}
    is_there = lambda path: path.read_text(encoding="utf-8") if path.exists() else None
    differing = [path for path, text in wanted.items() if is_there(path) != text]
    for path in () if check else differing:
        if wanted[path] is None:
            path.unlink()
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    return [str(path.relative_to(root)) for path in differing]


def _declared(root, name, result):
    """The benchmark, of one that grows at the sizes that were measured."""
    sizes = (result or {}).get("parameters", {}).get("sizes")
    try:
        return load(name, root, sizes)
    except BenchError as error:
        raise BenchError(f"bench/results/{name}.json: {error}; measure again: bench/run {name}") if sizes else error


def _result(root, name):
    path = results(root) / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None
