"""What bench/fidelity prints."""

import re
from collections import Counter

CLIP = 160


def percent(value):
    return f"{100 * value:6.2f} %"


def print_table(tests, models, errors, aims, absent):
    for name, row in tests.items():
        print(f"{row['suite']:<34} {row['passed']:>5} of {row['programs']:<5} {percent(row['share'])}   "
              f"CPython {row['cpython']}, aim {percent(aims[name])}")
    for against in ("recorded", "live"):
        row, aim = models[against], (lambda name: f"   aim {percent(aims[name])}" if against == "recorded" else "")
        print(f"programs, output as {against:<14} {models['programs']:>14} {percent(row['stdout'])}{aim('stdout')}")
        print(f"  type and message of {row['raising']:>5} that raise{'':>5} {percent(row['errors'])}{aim('errors')}"
              f"   type alone {percent(row['kinds'])}")
    print(f"  lines of tracebacks as CPython's {'':>15} {percent(models['traceback_lines'])}")
    print(f"  left out for want of {', '.join(sorted(absent)[:3])}, ...: {models['left_out']}")
    print(f"broken programs, type, message, line {errors['programs']:>11} {percent(errors['type_message_line'])}")
    for part in ("kind", "message", "line", "text"):
        print(f"  {part:<46} {percent(errors[part])}")


def pattern(error):
    """A message without what is particular to its program."""
    text = re.sub(r"\b(on|at) line \d+", r"\1 line N", f"{error['kind']}: {error['message']}")
    text = re.sub(r"U\+[0-9A-F]+", "U+…", text)
    return re.sub(r"(character) '[^']*'", r"\1 '…'", text)


def syntax_patterns(invalid):
    """The differences in SyntaxErrors by kind, most frequent first."""
    counts, examples = Counter(), {}
    for row in invalid:
        wanted, found = pattern(row["expected"]), pattern(row["got"])
        if wanted == found:
            found = "the same with other numbers" if row["expected"].get("line") == row["got"]["line"] else "the same on another line"
        counts[wanted, found] += 1
        examples.setdefault((wanted, found), row["id"])
    return [{"count": count, "expected": key[0], "got": key[1], "example": examples[key]}
            for key, count in counts.most_common()]


def sides(wanted, found):
    """Two texts on a line each, from shortly before they part, if that is far in."""
    same = next((at for at, (one, two) in enumerate(zip(wanted, found)) if one != two), min(len(wanted), len(found)))
    skipped = max(same - CLIP // 3, 0) if max(len(wanted), len(found)) > CLIP else 0
    cut = [f"{'…' if skipped else ''}{text[skipped : skipped + CLIP]}{'…' if len(text) > skipped + CLIP else ''}"
           for text in (wanted, found)]
    return [text.replace("\r", "␍").replace("\n", "⏎") for text in cut]


def cells(wanted, found):
    return " | ".join("`` " + text.replace("|", "\\|") + " ``" for text in sides(wanted, found))


def differences_table(listed, invalid, patterns):
    """Every difference, as Markdown."""
    out = ["# Where the sandbox differs from CPython 3.11", "", "Written by `bench/fidelity/run.sh --differences FILE`.", ""]
    for suite, rows in listed.items():
        out += [f"## {suite}", ""]
        if not rows:
            out += ["None.", ""]
            continue
        out += ["| program | CPython | sandbox | why |", "|---|---|---|---|"]
        out += [f"| {row['id']} | {cells(row['expected'], row['got'])} | {row['reason']} |" for row in rows]
        out.append("")
    out += ["## SyntaxErrors by kind", "", "| times | CPython | sandbox | as in |", "|---|---|---|---|"]
    out += [f"| {row['count']} | {cells(row['expected'], row['got'])} | {row['example']} |" for row in patterns]
    out += ["", "## SyntaxErrors one by one", "", "| program | CPython | sandbox |", "|---|---|---|"]
    for row in invalid:
        texts = [f"{side['kind']}: {side['message']} (line {side.get('line')})" for side in (row["expected"], row["got"])]
        out.append(f"| {row['id']} | {cells(*texts)} |")
    return "\n".join(out) + "\n"
