#!/usr/bin/env python3
"""Draws the dashboard beside this file as a picture: keyqueue.svg, for the README.

No Grafana takes part. This program reads the panels, their places and their expressions from keyqueue.json, puts in the values of the
variables as Grafana does, asks a Prometheus for the answers, and draws them with the colours of Grafana's dark theme. It fails if an
expression has no answer, so it also shows that each of them is right. It needs Python 3.9 and nothing else.

    cargo run --release -p service &
    printf '%s\\n' 'global: {scrape_interval: 2s}' 'scrape_configs: [{job_name: service, static_configs: [{targets: ["127.0.0.1:8080"]}]}]' >scrape.yml
    prometheus --config.file=scrape.yml --web.listen-address=127.0.0.1:9090 &
    python3 examples/grafana/picture.py --load 300    # sends the service requests for five minutes
    python3 examples/grafana/picture.py --minutes 4   # draws the last four of them
"""

import argparse
import bisect
import http.client
import json
import math
import pathlib
import random
import re
import sys
import time
import urllib.parse
import urllib.request
from xml.sax.saxutils import escape

HERE = pathlib.Path(__file__).parent

# The picture: its width, the height of a row of the grid, and the gap between panels. A dashboard has 24 columns.
WIDTH, ROW, GAP, COLUMNS = 1200, 27, 6, 24
HEADER, FOOTER = 56, 34

# Grafana's dark theme.
PAGE, PANEL, BORDER, GRID = "#111217", "#181b1f", "#26282e", "#25272c"
TEXT, WEAK = "#d5d6e0", "#9a9ba6"
PALETTE = ["#73BF69", "#F2CC0C", "#8AB8FF", "#FF780A", "#F2495C", "#5794F2", "#B877D9", "#705DA0"]
COLOURS = {"green": "#73BF69", "blue": "#5794F2", "orange": "#FF9830", "red": "#F2495C", "dark-red": "#C4162A"}
FONT = "Inter, Roboto, Helvetica, Arial, sans-serif"


class Prometheus:
    """The HTTP interface of a Prometheus server."""

    def __init__(self, address):
        self.address = address.rstrip("/")

    def get(self, path, **parameters):
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            sys.exit(f"{url}: {error.read().decode()}")

    def range(self, expression, start, end, step):
        """The series of an expression: their labels, and their values by time."""
        data = self.get("query_range", query=expression, start=start, end=end, step=step)
        for series in data["result"]:
            values = ((float(at), float(value)) for at, value in series["values"])
            yield series["metric"], {at: value for at, value in values if math.isfinite(value)}


def variables(dashboard, prometheus):
    """The value of each variable of the dashboard, "All" for those that can be."""
    values = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        match = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"])
        found = prometheus.get(f"label/{match[2]}/values", **{"match[]": match[1]})
        values[variable["name"]] = "(" + "|".join(found) + ")" if len(found) > 1 else "".join(found)
    return values


def substitute(expression, values):
    """The expression with the values of its variables. The longest name first: `$name` is not part of `$name_x`."""
    for name in sorted(values, key=len, reverse=True):
        expression = re.sub(rf"\$(\{{{name}\}}|{name}\b)", lambda _: str(values[name]), expression)
    if "$" in expression:
        sys.exit(f"{expression}: a variable that this program does not know")
    return expression


def legend(target, labels):
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda name: labels.get(name[1], ""), target["legendFormat"])


def fixed_colour(panel, name):
    """The colour that an override of the panel gives to the series of this name, or None."""
    for override in panel["fieldConfig"]["overrides"]:
        if re.search(override["matcher"]["options"].strip("/"), name):
            for setting in override["properties"]:
                if setting["id"] == "color":
                    return COLOURS[setting["value"]["fixedColor"]]
    return None


# ---- numbers ----


def number(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def scaled(value, units):
    """The value in the largest of the units that is not larger than it."""
    factor, name = next((unit for unit in units if abs(value) >= unit[0] * (1 - 1e-9)), units[-1])
    return number(value / factor) + name


def with_unit(value, unit):
    thousands = [(1e9, " Bil"), (1e6, " Mil"), (1e3, " K"), (1, "")]
    if unit == "s":
        units = [(60, " min"), (1, " s"), (1e-3, " ms"), (1e-6, " µs"), (1e-9, " ns")]
        return "0 s" if value == 0 else scaled(value, units)
    text = "0" if value == 0 else number(value) if abs(value) < 1 else scaled(value, thousands)
    return {"short": text, "ops": f"{text} ops/s"}[unit]


def linear_ticks(low, high, count):
    """Round numbers from below `low` to above `high`."""
    if high <= low:
        high = low + 1
    rough = (high - low) / count
    power = 10 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, last + 1)]


def log_ticks(low, high):
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    return [10.0**n for n in range(first, max(last, first + 1) + 1)]


# ---- drawing ----


def text(x, y, content, size=11, fill=WEAK, anchor="start", weight=400):
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"{bold}>{escape(content)}</text>'


def box(x, y, width, height, fill, stroke=None, radius=2):
    line = f' stroke="{stroke}"' if stroke else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}" fill="{fill}"{line}/>'


def line(x1, y1, x2, y2, stroke, extra=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"{extra}/>'


def width_of(content, size):
    """About how wide a text is. The reader's font is not known."""
    return len(content) * size * 0.6


def place(panel):
    """The panel's rectangle: x, y, width, height."""
    grid, column = panel["gridPos"], (WIDTH - GAP) / COLUMNS
    x, y = GAP + grid["x"] * column, HEADER + grid["y"] * ROW
    return x, y, grid["w"] * column - GAP, grid["h"] * ROW - GAP


def draw_row(panel):
    x, y, _, height = place(panel)
    middle = y + height / 2
    yield f'<path d="M{x + 5:.1f} {middle - 2:.1f}l4 4l4 -4" fill="none" stroke="{TEXT}" stroke-width="1.5"/>'
    yield text(x + 22, middle + 5, panel["title"], 14, TEXT, weight=500)


def draw_legend(x, y, width, names):
    """The names of the series at the bottom, in as many lines as they need. `y`: of the last line. Returns the height as well."""
    lines, left = [[]], width
    for entry in names:
        needed = 18 + width_of(entry[0], 11) + 12
        if needed > left and lines[-1]:
            lines.append([])
            left = width
        lines[-1].append((x + width - left, entry))
        left -= needed
    drawn = []
    for row, entries in enumerate(lines):
        base = y - (len(lines) - 1 - row) * 16
        for at, (name, colour) in entries:
            drawn += [box(at, base - 5.5, 13, 3.5, colour), text(at + 18, base, name, 11, TEXT)]
    return drawn, 16 * len(lines)


def segments(values, step):
    """The points of a series, in parts where one is missing."""
    parts, last = [], None
    for at, value in sorted(values.items()):
        if last is None or at - last > 1.5 * step:
            parts.append([])
        parts[-1].append((at, value))
        last = at
    return parts


def draw_panel(panel, all_series, start, end, step):
    """A panel of type timeseries."""
    x, y, width, height = place(panel)
    field = panel["fieldConfig"]["defaults"]
    custom, unit = field["custom"], field["unit"]
    yield box(x, y, width, height, PANEL, BORDER)
    yield text(x + 9, y + 19, panel["title"], 13, TEXT, weight=500)

    names = [(name, fixed_colour(panel, name) or PALETTE[n % len(PALETTE)]) for n, (name, _) in enumerate(all_series)]
    drawn, legend_height = draw_legend(x + 10, y + height - 9, width - 20, names)
    yield from drawn

    # The axes.
    is_log = custom.get("scaleDistribution", {}).get("type") == "log"
    flat = [value for _, values in all_series for value in values.values() if value > 0 or not is_log]
    steps = [step for step in field.get("thresholds", {}).get("steps", []) if step["value"] is not None]
    top, bottom = y + 34, y + height - legend_height - 27
    if is_log:
        ticks = log_ticks(min(flat), max(flat))
    else:
        low = field.get("min", min(flat))
        ticks = linear_ticks(low, field.get("max", max(flat)), max(2, (bottom - top) / 32))
    labels = [with_unit(tick, unit) for tick in ticks]
    left, right = x + 18 + max(width_of(label, 11) for label in labels), x + width - 14
    scale = math.log10 if is_log else float
    low, high = scale(ticks[0]), scale(ticks[-1])
    across = lambda at: left + (right - left) * (at - start) / (end - start)
    up = lambda value: bottom - (bottom - top) * (scale(value) - low) / (high - low)
    for tick, label in zip(ticks, labels):
        yield line(left, up(tick), right, up(tick), GRID)
        yield text(left - 7, up(tick) + 4, label, 11, WEAK, "end")
    apart = [s for s in (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600) if across(start + s) - left >= (62 if s % 60 else 44)]
    form = "%H:%M" if apart[0] % 60 == 0 else "%H:%M:%S"
    for at in range(math.ceil(start / apart[0]) * apart[0], math.floor(end) + 1, apart[0]):
        yield line(across(at), top, across(at), bottom, GRID)
        if left - 10 <= across(at) - 16 and across(at) + 16 <= x + width - 4:
            yield text(across(at), bottom + 16, time.strftime(form, time.gmtime(at)), 11, WEAK, "middle")

    # The thresholds, if the panel shows them as lines, and the series.
    if custom.get("thresholdsStyle", {}).get("mode", "off") != "off":
        for threshold in steps:
            if ticks[0] <= threshold["value"] <= ticks[-1]:
                yield line(left, up(threshold["value"]), right, up(threshold["value"]), threshold["color"], ' stroke-dasharray="6 4"')
    for (_, values), (_, colour) in zip(all_series, names):
        for part in segments({at: value for at, value in values.items() if value > 0 or not is_log}, step):
            points = " ".join(f"{across(at):.1f},{up(value):.1f}" for at, value in part)
            if custom["fillOpacity"]:
                area = f"{across(part[0][0]):.1f},{bottom:.1f} {points} {across(part[-1][0]):.1f},{bottom:.1f}"
                yield f'<polygon points="{area}" fill="{colour}" fill-opacity="{custom["fillOpacity"] / 100}"/>'
            stroke = f'stroke="{colour}" stroke-width="{custom["lineWidth"] * 1.25}" stroke-linejoin="round"'
            yield f'<polyline points="{points}" fill="none" {stroke}/>'


def draw_header(dashboard, minutes):
    yield text(GAP + 4, 35, dashboard["title"], 19, TEXT, weight=500)
    at = GAP + 4 + width_of(dashboard["title"], 19) + 20
    for variable in dashboard["templating"]["list"]:
        value = variable["query"] if variable["type"] == "datasource" else variable["current"]["text"][0]
        label, chosen = width_of(variable["label"], 12) + 16, width_of(value, 12) + 34
        yield box(at, 15, label + chosen, 28, PANEL, BORDER)
        yield text(at + 9, 33.5, variable["label"], 12, WEAK)
        yield line(at + label, 15, at + label, 43, BORDER)
        yield text(at + label + 9, 33.5, value, 12, TEXT)
        yield f'<path d="M{at + label + chosen - 17:.1f} 27.5l4 4l4 -4" fill="none" stroke="{WEAK}" stroke-width="1.5"/>'
        at += label + chosen + 10
    for label, right in ((dashboard["refresh"], WIDTH - GAP), (f"Last {minutes} minutes", WIDTH - GAP - 62)):
        wide = width_of(label, 12) + 22
        yield box(right - wide, 15, wide, 28, PANEL, BORDER)
        yield text(right - wide / 2, 33.5, label, 12, TEXT, "middle")


def draw(dashboard, prometheus, minutes, scrape, end):
    start = end - 60 * minutes
    # As Grafana: a point every few pixels, but not more often than the metrics are read; and rates over four readings at least.
    step = max(scrape, math.ceil((end - start) / 400))
    values = variables(dashboard, prometheus)
    values["__rate_interval"] = f"{max(step + scrape, 4 * scrape)}s"
    parts, empty = list(draw_header(dashboard, minutes)), []
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            parts += draw_row(panel)
            continue
        if panel["type"] != "timeseries":
            sys.exit(f"{panel['title']}: this program draws no panels of type {panel['type']}")
        all_series = []
        for target in panel["targets"]:
            found = list(prometheus.range(substitute(target["expr"], values), start, end, step))
            found = [(legend(target, labels), points) for labels, points in found if points]
            if not found:
                empty.append(f"{panel['title']}: {target['expr']}")
            all_series += found
        if all_series:
            parts += draw_panel(panel, all_series, start, end, step)
    if empty:
        sys.exit("no answer to\n  " + "\n  ".join(empty))
    height = HEADER + ROW * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"]) + FOOTER
    caption = "Drawn by examples/grafana/picture.py from the dashboard's expressions and a real Prometheus's answers; times are UTC."
    parts.append(text(GAP + 4, height - 13, caption, 12, WEAK))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="{FONT}">'
    return "\n".join([head, box(0, 0, WIDTH, height, PAGE, radius=0), *parts, "</svg>", ""])


# ---- load ----


def load(service, seconds):
    """Sends the service requests: each minute a wave that is more than its workers can do, and now and then documents that take long, that
    fail for some time or always, or on which the parser panics. Some documents are watched."""
    connection = http.client.HTTPConnection(service, timeout=10)
    choice, begin, sent = random.Random(7), time.monotonic(), 0
    # The shape of the load: from which second of a minute on there are how many requests a second.
    shape = [(0, 60), (8, 120), (14, 330), (26, 90), (40, 140), (52, 40)]
    while (now := time.monotonic() - begin) < seconds:
        second, minute = now % 60, int(now // 60)
        rate = shape[bisect.bisect_right([at for at, _ in shape], second) - 1][1] * (1 + 0.15 * math.sin(now / 3))
        kinds = {"locked": 6 if 28 <= second < 44 else 0.7, "broken": 1.5 if minute % 2 and second >= 30 else 0.15, "large": 1.2}
        kinds["malformed"] = 0.3 if minute == 2 else 0.02
        kinds["watched"] = 6 if now < 10 else 0
        kind = "document"
        dice = choice.random() * rate
        for name, share in kinds.items():
            if dice < share:
                kind = name
                break
            dice -= share
        # Few documents change again and again: an add of one that is queued changes nothing.
        document = int(choice.paretovariate(0.35)) % 100 if choice.random() < 0.3 else choice.randrange(3000)
        connection.request("POST", f"/reindex/{kind}-{document}")
        connection.getresponse().read()
        sent += 1
        time.sleep(choice.expovariate(rate))
    print(f"{sent} requests")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", help="where Prometheus answers")
    parser.add_argument("--minutes", type=int, default=4, help="the time that the picture shows")
    parser.add_argument("--scrape", type=int, default=2, help="the seconds between two readings of the metrics")
    parser.add_argument("--end", type=float, help="when this time ends, as a Unix time; now, if not given")
    parser.add_argument("--output", default=HERE / "keyqueue.svg", type=pathlib.Path)
    parser.add_argument("--load", type=int, metavar="SECONDS", help="draw nothing: send the example service requests")
    parser.add_argument("--service", default="127.0.0.1:8080", help="where the service answers")
    arguments = parser.parse_args()
    if arguments.load:
        return load(arguments.service, arguments.load)
    dashboard = json.loads((HERE / "keyqueue.json").read_text())
    end = math.floor(arguments.end or time.time())
    picture = draw(dashboard, Prometheus(arguments.prometheus), arguments.minutes, arguments.scrape, end)
    arguments.output.write_text(picture)
    panels = sum(panel["type"] != "row" for panel in dashboard["panels"])
    print(f"{arguments.output.name}: {panels} panels, {len(picture) // 1024} KiB, the {arguments.minutes} minutes before {end}")


if __name__ == "__main__":
    main()
