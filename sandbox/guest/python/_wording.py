"""Messages in the words of CPython 3.11, which models have read most, where the interpreter uses those of a later one."""

import re

# Class, what the message looks like, what 3.11 says.
RULES = [
    (RecursionError, r"maximum recursion depth exceeded\s*", "maximum recursion depth exceeded"),
    (UnboundLocalError, r"local variable '(.*)' referenced before assignment",
     r"cannot access local variable '\1' where it is not associated with a value"),
    (ValueError, r"expected a (?:nonnegative|positive|noninteger|finite|number).*", "math domain error"),
    (ValueError, r"(max|min)\(\) iterable argument is empty", r"\1() arg is an empty sequence"),
    (ValueError, r"too many values to unpack \(expected (\d+), got \d+\)", r"too many values to unpack (expected \1)"),
    (ValueError, r"'(-?\d+(?:\.\d+)?)' is not in list", r"\1 is not in list"),
    (TypeError, r"cannot use '.*' as a (?:set element|dict key) \((unhashable type: '.*')\)", r"\1"),
    (TypeError, r"argument of type '(.*)' is not a container or iterable", r"argument of type '\1' is not iterable"),
    (IndentationError, r"unexpected indentation", "unexpected indent"),
    (SyntaxError, r"parameter without a default follows parameter with a default",
     "non-default argument follows default argument"),
    (SyntaxError, r"illegal target for annotation|expected a module name|Expected one or more names after 'import'",
     "invalid syntax"),
]
RULES = [(cls, re.compile(pattern, re.S), said) for cls, pattern, said in RULES]
DETECTED = re.compile(r"(.*\(detected at line )(\d+)\)")


def reword(error, source):
    """Puts an exception of the interpreter's own into 3.11's words."""
    if isinstance(error, SyntaxError):
        reword_syntax(error, source)
    elif len(error.args) == 1 and type(error.args[0]) is str:
        error.args = (words(error, error.args[0]),)


def words(error, message):
    for cls, pattern, replacement in RULES:
        if type(error) is cls:
            found = pattern.fullmatch(message)
            if found:
                return found.expand(replacement)
    return message


def reword_syntax(error, source):
    message = error.msg
    if not isinstance(message, str):
        return
    message = words(error, message)
    detected = DETECTED.fullmatch(message)
    if detected:
        lines = source.count("\n") + (not source.endswith("\n"))
        message = f"{detected[1]}{min(int(detected[2]), lines)})"
    strange = strange_character(error) if message.startswith(("invalid syntax", "unmatched")) else None
    if strange:
        kind = "character" if strange.isprintable() else "non-printable character"
        shown = f" '{strange}' (U+{ord(strange):04X})" if strange.isprintable() else f" U+{ord(strange):04X}"
        message = f"invalid {kind}{shown}"
    if message != error.msg:
        error.msg = message
        if error.args:
            error.args = (message, *error.args[1:])


def strange_character(error):
    """The first character of the line at fault that no token can hold."""
    line, offset = error.text, error.offset
    if not isinstance(line, str) or not isinstance(offset, int):
        return None
    for place, character in enumerate(line):
        if ord(character) > 127 and not ("a" + character).isidentifier() and not inside_string(line, place):
            error.offset, error.end_offset = place + 1, place + 2
            return character
    return None


def inside_string(line, place):
    quote = None
    for character in line[:place]:
        if quote is None and character == "#":
            return True
        if character in "'\"":
            quote = character if quote is None else None if quote == character else quote
    return quote is not None
