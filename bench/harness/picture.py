"""Pictures as SVG, by no other means than text: curves, both axes logarithmic, a line and a name for each side; estimates with intervals."""

import math
from html import escape

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 40, 50
# Told apart by those who see fewer colours too (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
STEPS = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9))


def number(value):
    """A number of three digits: 0.05, 12, 1.5k, 21M."""
    value = float(f"{value:.3g}")
    suffix, unit = next(step for step in reversed(STEPS) if abs(value) >= step[1] or step[1] == 1)
    return f"{value / unit:g}{suffix}"


class Axis:
    """Places of values between two ends of a logarithmic axis."""

    def __init__(self, values, begin, end):
        low, high = math.log10(min(values)), math.log10(max(values))
        if high - low < 0.1:
            low, high = low - 0.1, high + 0.1
        margin = (high - low) * 0.06
        self.low, self.high, self.begin, self.end = low - margin, high + margin, begin, end

    def place(self, value):
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.begin + share * (self.end - self.begin), 1)

    def marks(self):
        """Round numbers that lie on it, at least two: of long axes the powers of ten alone, of short ones what is between them too."""
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        lies = lambda value: self.low <= math.log10(value) <= self.high
        within = lambda parts: [part * 10.0**power for power in powers for part in parts if lies(part * 10.0**power)]
        finer = [[part / steps for part in range(steps, 10 * steps)] for steps in (1, 2, 10)]
        ways = [(1,)] if self.high - self.low > 3 else [(1, 2, 5), *finer]
        return next(marks for marks in map(within, ways) if len(marks) > 1)


def text(x, y, words, more=""):
    return f'<text x="{x}" y="{y}"{more}>{escape(words)}</text>'


def opened(title, height):
    """What every picture begins with."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" fill="#222">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        text(LEFT, 22, title, ' font-size="14"'),
    ]


def draw(title, axis, unit, lines):
    """The picture of lines of (x, y) by their names. A y that is not above 0 has no place on the axis and is left out."""
    lines = {name: [(x, y) for x, y in points if y > 0] for name, points in lines.items()}
    lines = {name: points for name, points in lines.items() if points}
    xs = Axis([x for points in lines.values() for x, _ in points] or [1], LEFT, WIDTH - RIGHT)
    ys = Axis([y for points in lines.values() for _, y in points] or [1], HEIGHT - BOTTOM, TOP)
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    made = [
        *opened(title, HEIGHT),
        text((LEFT + right) / 2, HEIGHT - 12, axis, ' text-anchor="middle"'),
        text(14, (TOP + floor) / 2, unit, f' text-anchor="middle" transform="rotate(-90 14 {(TOP + floor) / 2})"'),
    ]
    for mark in xs.marks():
        x = xs.place(mark)
        made.append(f'<path d="M{x} {TOP}V{floor}" stroke="#ddd"/>' + text(x, floor + 16, number(mark), ' text-anchor="middle"'))
    for mark in ys.marks():
        y = ys.place(mark)
        made.append(f'<path d="M{LEFT} {y}H{right}" stroke="#ddd"/>' + text(LEFT - 6, y + 4, number(mark), ' text-anchor="end"'))
    made.append(f'<path d="M{LEFT} {TOP}V{floor}H{right}" fill="none" stroke="#222"/>')
    for order, (name, points) in enumerate(lines.items()):
        colour = COLOURS[order % len(COLOURS)]
        places = [(xs.place(x), ys.place(y)) for x, y in points]
        made.append(f'<polyline points="{" ".join(f"{x},{y}" for x, y in places)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        made += [f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>' for x, y in places]
        height = TOP + 12 + 20 * order
        made.append(f'<rect x="{right + 16}" y="{height - 9}" width="12" height="10" fill="{colour}"/>' + text(right + 34, height, name))
    return "\n".join([*made, "</svg>\n"])


def round_numbers(low, high, most=8):
    """Multiples of 1, 2 or 5 times a power of ten that lie between two ends, `most` of them at the most."""
    power = 10.0 ** (math.floor(math.log10(high - low)) - 1)
    step = next(part * power for part in (1, 2, 5, 10, 20, 50, 100) if (high - low) / (part * power) < most)
    return [index * step for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def intervals(title, unit, rows):
    """The picture of estimates on a linear axis, zero on it, a line for each: rows of (name, group, (estimate, low, high)), of which low and
    high may be None. Groups have a colour each; a name that stands in the row before is not repeated."""
    rows = [row for row in rows if row[2][0] is not None]
    values = [value for *_, found in rows for value in found if value is not None] + [0]
    low, high = min(values), max(values)
    margin = (high - low) * 0.05 or 0.1
    low, high = low - margin, high + margin
    left, right = LEFT + 80, WIDTH - RIGHT
    height = TOP + 16 * len(rows) + BOTTOM
    floor = height - BOTTOM
    place = lambda value: round(left + (value - low) / (high - low) * (right - left), 1)
    made = [*opened(title, height), text((left + right) / 2, height - 12, unit, ' text-anchor="middle"')]
    for mark in round_numbers(low, high):
        x = place(mark)
        colour = "#222" if abs(mark) < 1e-12 else "#ddd"
        made.append(f'<path d="M{x} {TOP}V{floor}" stroke="{colour}"/>' + text(x, floor + 16, f"{mark:.3g}", ' text-anchor="middle"'))
    colours = dict(zip(dict.fromkeys(group for _, group, _ in rows), COLOURS))
    before = None
    for order, (name, group, (estimate, *ends)) in enumerate(rows):
        y, colour = TOP + 16 * order + 10, colours[group]
        if name != before:
            made.append(text(left - 8, y + 4, name, ' text-anchor="end"'))
        before = name
        if None not in ends:
            made.append(f'<path d="M{place(ends[0])} {y}H{place(ends[1])}" stroke="{colour}" stroke-width="2"/>')
        made.append(f'<circle cx="{place(estimate)}" cy="{y}" r="3.5" fill="{colour}"/>')
    for order, (group, colour) in enumerate(colours.items()):
        y = TOP + 12 + 20 * order
        made.append(f'<rect x="{right + 16}" y="{y - 9}" width="12" height="10" fill="{colour}"/>' + text(right + 34, y, group))
    return "\n".join([*made, "</svg>\n"])
