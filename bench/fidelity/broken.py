"""Programs that are not valid Python, made from valid ones by damages that models' code really has.

The same programs come out every time: every choice is drawn from a generator seeded by damage and program.
"""

import io
import random
import re
import tokenize
import warnings

PROSE = [
    "To answer this question, I need to find when the bridge was built.",
    "Let me search for the director first",
    "The answer is 42.",
    "First, we'll look up the page. Then we'll read its second section.",
    "Search: birthplace of the composer of the opera",
    "I don't know which page holds it",
    "<search>capital of the region</search>",
    "Step 1: find the author\nStep 2: find the author's birthplace",
    "- search the title\n- read the first section",
    "search_pages(query=the mayor of the town)",
    "So the total is 5 x 3 = 15 apples",
    "Therefore, the distance is 12 km/h * 3 h = 36 km",
    "**Answer**: 1984",
    "# Plan\nfind the page of the film; read its cast",
    "result = search_pages('who wrote it')\nThe result shows the author.",
]


def spots(code, wanted):
    """Places of the tokens that `wanted` accepts, as (start, end) offsets."""
    starts = [0]
    for line in code.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if wanted(token):
            found.append((starts[token.start[0] - 1] + token.start[1], starts[token.end[0] - 1] + token.end[1]))
    return found


def operator(signs):
    return lambda token: token.type == tokenize.OP and token.string in signs


def is_string(token):
    return token.type == tokenize.STRING


def cut(code, place):
    return code[: place[0]] + code[place[1] :]


def put(code, place, text):
    return code[: place[0]] + text + code[place[1] :]


def one(draw, code, wanted):
    """A place drawn among those that `wanted` accepts, or none."""
    found = spots(code, wanted)
    return draw.choice(found) if found else None


def drop(signs):
    def damage(draw, code):
        place = one(draw, code, operator(signs))
        return place and cut(code, place)

    return damage


def replace(signs, text):
    def damage(draw, code):
        place = one(draw, code, operator(signs))
        return place and put(code, place, text)

    return damage


def extra_bracket(draw, code):
    place = one(draw, code, operator(")]}"))
    return place and put(code, (place[1], place[1]), draw.choice(")]}"))


def wrong_bracket(draw, code):
    place = one(draw, code, operator(")]}"))
    return place and put(code, place, draw.choice([sign for sign in ")]}" if sign != code[place[0]]]))


def drop_closing_quote(draw, code):
    place = one(draw, code, is_string)
    return place and cut(code, (place[1] - 1, place[1]))


def drop_opening_quote(draw, code):
    place = one(draw, code, is_string)
    return place and cut(code, (place[0], place[0] + 1))


def quote_inside(draw, code):
    place = one(draw, code, lambda token: is_string(token) and token.string[:1] in "'\"" and len(token.string) > 6)
    if not place:
        return None
    middle = (place[0] + place[1]) // 2
    return put(code, (middle, middle), code[place[0]])


def curly_quotes(draw, code):
    place = one(draw, code, lambda token: is_string(token) and token.string[:1] in "'\"")
    return place and put(code, place, f"\u201c{code[place[0] + 1 : place[1] - 1]}\u201d")


def unterminated_triple(draw, code):
    place = one(draw, code, is_string)
    return place and code[: place[0]] + '"""' + code[place[0] + 1 :]


def indent_lines(draw, code):
    """Lines that have something before them, and the width of their indent."""
    rows = code.split("\n")
    return rows, [at for at, row in enumerate(rows) if at and row.strip()]


def drop_indent(draw, code):
    rows, places = indent_lines(draw, code)
    places = [at for at in places if rows[at][:1] in " \t"]
    if not places:
        return None
    at = draw.choice(places)
    rows[at] = rows[at].lstrip()
    return "\n".join(rows)


def more_indent(draw, code):
    rows, places = indent_lines(draw, code)
    if not places:
        return None
    at = draw.choice(places)
    rows[at] = " " * draw.choice([1, 2, 4]) + rows[at]
    return "\n".join(rows)


def less_indent(draw, code):
    rows, places = indent_lines(draw, code)
    places = [at for at in places if rows[at].startswith("  ")]
    if not places:
        return None
    at = draw.choice(places)
    rows[at] = rows[at][1:]
    return "\n".join(rows)


def tab_indent(draw, code):
    rows, places = indent_lines(draw, code)
    places = [at for at in places if rows[at].startswith("    ")]
    if not places:
        return None
    at = draw.choice(places)
    rows[at] = "\t" + rows[at][4:]
    return "\n".join(rows)


def empty_body(draw, code):
    rows = code.split("\n")
    places = [at for at, row in enumerate(rows) if re.match(r"\s*(def|if|for|while|else|elif)\b.*:\s*$", row)]
    if not places:
        return None
    at = draw.choice(places)
    width = len(rows[at]) - len(rows[at].lstrip())
    end = at + 1
    while end < len(rows) and (not rows[end].strip() or len(rows[end]) - len(rows[end].lstrip()) > width):
        end += 1
    return "\n".join(rows[: at + 1] + rows[end:])


def prose(draw, _):
    return draw.choice(PROSE)


def prose_before(draw, code):
    return f"{draw.choice(PROSE)}\n{code}"


def prose_after(draw, code):
    return f"{code}\n{draw.choice(PROSE)}"


def fences(draw, code):
    return draw.choice(["```python\n{}\n```", "```\n{}\n```", "{}\n```", "Here is the code:\n```python\n{}\n```"]).format(code)


def prompts(_, code):
    return "\n".join(f">>> {row}" for row in code.split("\n") if row.strip())


def numbered(_, code):
    return "\n".join(f"{at + 1} {row}" for at, row in enumerate(code.split("\n")))


def truncated(draw, code):
    return code[: draw.randrange(1, len(code))]


def print_statement(draw, code):
    calls = list(re.finditer(r"\bprint\(([^()\n]*)\)", code))
    if not calls:
        return None
    call = draw.choice(calls)
    return put(code, call.span(), f"print {call[1]}")


def missing_comma(draw, code):
    place = one(draw, code, operator(","))
    return place and put(code, place, "")


def keyword_name(draw, code):
    place = one(draw, code, lambda token: token.type == tokenize.NAME and len(token.string) > 3
                and token.string.islower() and token.string not in ("return", "from", "import", "print", "range"))
    return place and put(code, place, draw.choice(["class", "from", "lambda", "in"]))


def sign_character(draw, code):
    place = one(draw, code, operator("+-*/=(<"))
    return place and put(code, place, draw.choice(["×", "÷", "−", "≤", "²", "€", "\u00a0", "\u200b", "…", "→", "\x00", "\x07"]))


def stray_character(draw, code):
    place = one(draw, code, operator("=,("))
    return place and put(code, (place[0], place[0]), draw.choice(["$", "?", "!", "`"]))


def backslash(draw, code):
    place = one(draw, code, operator("=,(:"))
    return place and put(code, (place[1], place[1]), "\\ ")


def bad_number(draw, code):
    place = one(draw, code, lambda token: token.type == tokenize.NUMBER and token.string.isdigit())
    if not place:
        return None
    number = code[place[0] : place[1]]
    return put(code, place, draw.choice([f"0{number}7", f"{number}abc", f"1,{number}.0.1", f"{number}_", f"0x{number}g", f"{number}%"]))


def f_string(draw, code):
    place = one(draw, code, is_string)
    body = draw.choice(["{", "}", "{}", "{x", "{x!z}", "{a b}", "{x:{y}", "{print 'a'}"])
    return place and put(code, place, f'f"{body}"')


def target(draw, code):
    """An assignment to what cannot be assigned to."""
    names = spots(code, lambda token: token.type == tokenize.OP and token.string == "=")
    if not names:
        return None
    place = draw.choice(names)
    line = code.rfind("\n", 0, place[0]) + 1
    width = len(code[line:]) - len(code[line:].lstrip(" \t"))
    left = draw.choice(["f(x)", "1", "'a'", "x + 1", "None", "[1, 2]", "x if y else z", "lambda: 0", "f(x), y", "-x", "{}"])
    return code[: line + width] + left + " " + code[place[0] :]


def misplaced(draw, code):
    """A statement where the language does not allow it."""
    statement = draw.choice(["return 1", "break", "continue", "yield 1", "await f()", "nonlocal x", "import", "from x import",
                             "else:", "except:", "def f(x, x): pass", "def f(a=1, b): pass", "f(a=1, 2)", "f(a=1, a=2)",
                             "f(**k, *a)", "x = ", "for i in range(3)", "if x = 1: pass", "while True print(1)", "del f()",
                             "global x; x: int = 1", "assert", "raise from x", "try:\n    pass\nx = 1", "x = yield = 1",
                             "def f():\nreturn 1", "class A\n    pass", "lambda x: return x", "print(x for x in y, 1)"])
    return f"{code}\n{statement}\n"


DAMAGES = {
    "opening bracket missing": drop("([{"),
    "closing bracket missing": drop(")]}"),
    "bracket too many": extra_bracket,
    "wrong bracket": wrong_bracket,
    "colon missing": drop(":"),
    "closing quote missing": drop_closing_quote,
    "opening quote missing": drop_opening_quote,
    "quote inside a string": quote_inside,
    "curly quotes": curly_quotes,
    "unterminated triple quote": unterminated_triple,
    "indent missing": drop_indent,
    "indent too deep": more_indent,
    "indent too shallow": less_indent,
    "tab among spaces": tab_indent,
    "body missing": empty_body,
    "prose instead": prose,
    "prose before": prose_before,
    "prose after": prose_after,
    "fences left in": fences,
    "prompts left in": prompts,
    "lines numbered": numbered,
    "truncated": truncated,
    "print statement": print_statement,
    "comma missing": missing_comma,
    "keyword as a name": keyword_name,
    "= instead of ==": replace(["=="], "="),
    "== instead of =": replace(["="], ":="),
    "operator missing": drop(["+", "-", "*", "/", "==", "<", ">"]),
    "foreign character": sign_character,
    "stray character": stray_character,
    "backslash": backslash,
    "malformed number": bad_number,
    "malformed f-string": f_string,
    "impossible target": target,
    "statement out of place": misplaced,
}


def compiles(code):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(code, "<program>", "exec")
        except (SyntaxError, ValueError):
            return False
    return True


def broken(sources, each=9):
    """`each` programs per damage, from sources that are valid; those a damage leaves valid are passed over."""
    sources = [source for source in sources if "\n" in source["code"].strip() and compiles(source["code"])]
    made = []
    for name, damage in DAMAGES.items():
        draw = random.Random(f"broken programs: {name}")
        seen = set()
        for source in draw.sample(sources, 400):
            code = damage(draw, source["code"])
            if not code or code in seen or compiles(code):
                continue
            seen.add(code)
            made.append({"id": f"{name}/{len(seen)}", "suite": "broken", "code": code, "damage": name})
            if len(seen) == each:
                break
    return made
