"""Renders the HTML report: one file that loads nothing, with bars drawn as SVG. Pure: figures -> text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from photon.config.words import size
from photon.spark.classes import Class
from photon.spark.verify.advice import GOOD, MEANING, TO_DO
from photon.spark.verify.causes import Cause
from photon.spark.verify.figures import ClassCount, ExampleFinding, Figures, bars, hour_text

BARS_MAX = 96
CHART = (1040, 120)  # width and height of a chart, in the units of its SVG
EXAMPLES_SHOWN = 5
DIFFERENCES_SHOWN = 20
_STYLE = """
:root{--ink:#1c2330;--dim:#667085;--line:#e3e7ee;--back:#f6f7f9;--card:#fff;--good:#1f8a5b;--wait:#c58a13;--bad:#c4312e;
--soft:#9fd3bb}
@media(prefers-color-scheme:dark){:root{--ink:#e8ebf0;--dim:#98a2b3;--line:#2e3642;--back:#12161c;--card:#1a2029;
--good:#3fb37f;--wait:#e0a83a;--bad:#ef5f5a;--soft:#2c6e51}}
*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}h2{font-size:17px;margin:34px 0 10px}
.verdict{border-radius:12px;padding:24px 28px;color:#fff;background:var(--good)}
.verdict.problems{background:var(--bad)}.verdict.not-judged{background:var(--wait)}
.verdict h1{margin:0;font-size:30px;line-height:1.2}.verdict p{margin:6px 0 0;opacity:.92}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin-top:14px}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px}
.tile b{display:block;font-size:24px;font-variant-numeric:tabular-nums}.tile span{color:var(--dim);font-size:13px}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;color:var(--dim);font-weight:500;font-size:13px}
th,td{padding:7px 10px 7px 0;border-bottom:1px solid var(--line);vertical-align:top}tr:last-child td{border-bottom:0}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;padding-right:18px}
.dot{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:8px}
.name{white-space:nowrap;font-weight:600}
code{font:12.5px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}small,.dim{color:var(--dim)}
.run{user-select:all}svg{display:block;width:100%;height:auto}svg text{fill:var(--dim);font:11px system-ui,sans-serif}
.key{display:flex;gap:18px;font-size:13px;color:var(--dim);margin:0 0 8px}.card+.card{margin-top:12px}
.card h3{margin:0 0 6px;font-size:14px}
"""
_LEVELS = (("correct", "var(--good)"), ("late or pending", "var(--wait)"), ("problem", "var(--bad)"))


def page(figures: Figures) -> str:
    title = f"Verification of {figures.join}"
    parts = [
        _verdict(figures),
        _tiles(figures),
        _coverage(figures),
        _causes(figures.causes),
        _next(figures),
        _classes(figures),
        _charts(figures),
        _examples(figures.examples),
        _ledger(figures),
        _inputs(figures),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main></body></html>\n"
    )


def _verdict(figures: Figures) -> str:
    said = figures.headline()
    period = f"{hour_text(figures.from_hour)} to {hour_text(figures.to_hour)} UTC"
    where = ", ".join(figures.datacentres)
    return (
        f'<section class="verdict {figures.verdict()}"><h1>{escape(said[0].upper() + said[1:])}</h1>'
        f"<p>{escape(figures.join)} · {escape(period)} · {escape(where)}</p></section>"
    )


def _tiles(figures: Figures) -> str:
    totals = figures.totals()
    judged = sum(totals.values()) - totals.get(Class.PENDING, 0)
    right = totals.get(Class.CORRECT, 0) + totals.get(Class.LATE, 0)
    shown = [
        (f"{totals.get(Class.CORRECT, 0):,}", "correct"),
        (f"{figures.problems():,}", _many("problem", figures.problems())),
        *([(f"{sum(figures.acknowledged.values()):,}", "acknowledged")] if figures.acknowledged else []),
        (f"{totals.get(Class.PENDING, 0):,}", "pending, not judged"),
        (f"{totals.get(Class.LATE, 0):,}", "late"),
        (_share(right, judged), "judged correct"),
    ]
    tiles = "".join(f'<div class="tile"><b>{value}</b><span>{name}</span></div>' for value, name in shown)
    return f'<div class="tiles">{tiles}</div>'


def _coverage(figures: Figures) -> str:
    """Shows events judged and pending by datacentre, and inputs that were not read."""
    rows = "".join(
        f'<tr><td class="name">{escape(each.datacentre)}</td>'
        + "".join(
            f'<td class="n">{"-" if count is None else f"{count:,}"}</td>'
            for count in (each.events, each.usual, each.judged, each.pending, *each.files.values())
        )
        + "</tr>"
        for each in figures.coverage
    )
    if not rows:
        return ""
    sides = [f"{side} files" for side in figures.coverage[0].files]
    names = ["events in logs", "usually", "judged", "pending", *sides]
    head = "<tr><th>datacentre</th>" + "".join(f'<th class="n">{name}</th>' for name in names) + "</tr>"
    said = [f"not judged: {each}" for each in figures.unjudged]
    said += [f"not read: {each}" for each in figures.unlooked]
    lines = "".join(f"<p>{escape(each)}</p>" for each in said)
    return f'<h2>Coverage</h2><div class="card wide"><table>{head}{rows}</table>{lines}</div>'


def _causes(causes: Sequence[Cause]) -> str:
    """Shows each cause with its command, which a click selects."""
    if not causes:
        return ""
    rows = "".join(
        f'<tr><td class="name">{escape(each.kind)}</td><td>{escape(each.datacentre)}</td>'
        f'<td class="n">{each.events:,}</td><td>{escape(each.say)}<br>'
        f'<code class="run">{escape(each.command)}</code></td></tr>'
        for each in causes
    )
    head = (
        '<tr><th>cause</th><th>datacentre</th><th class="n">events</th><th>what happened, what to run next</th></tr>'
    )
    return f'<h2>Causes</h2><div class="card wide"><table>{head}{rows}</table></div>'


def _next(figures: Figures) -> str:
    """Shows the commands to run next, ready to copy."""
    rows = "".join(
        f'<tr><td class="name">{escape(why)}</td><td><code class="run">{escape(command)}</code></td></tr>'
        for why, command in figures.next_commands()
    )
    if not rows:
        return ""
    return f'<h2>What to run next</h2><div class="card wide"><table>{rows}</table></div>'


def _classes(figures: Figures) -> str:
    rows = []
    for kind, count in sorted(figures.totals().items(), key=lambda each: (each[0] in GOOD, -each[1])):
        to_do = escape(TO_DO.get(kind, "nothing to do"))
        if kind in figures.acknowledged:
            to_do += f' <span class="dim">({figures.acknowledged[kind]:,} acknowledged)</span>'
        rows.append(
            f'<tr><td class="name"><i class="dot" style="background:{_colour(kind)}"></i>{kind}</td>'
            f'<td class="n">{count:,}</td><td>{escape(MEANING[kind])}</td><td>{to_do}</td></tr>'
        )
    if not rows:
        return ""
    head = '<tr><th>finding</th><th class="n">events</th><th>what it means</th><th>what to do</th></tr>'
    return f'<h2>Findings</h2><div class="card wide"><table>{head}{"".join(rows)}</table></div>'


# -- charts ------------------------------------------------------------------------------------------------------
def _charts(figures: Figures) -> str:
    names: list[str | None] = [*figures.datacentres]
    names += sorted({each.datacentre for each in figures.counts if each.datacentre not in names}, key=str)
    shown = []
    for name in names:
        own = [each for each in figures.counts if each.datacentre == name]
        if own:
            shown.append(_chart(name or "no datacentre", own, figures.from_hour, figures.to_hour))
    if not shown:
        return ""
    key = "".join(f'<span><i class="dot" style="background:{colour}"></i>{name}</span>' for name, colour in _LEVELS)
    return f'<h2>By hour and datacentre</h2><div class="key">{key}</div>{"".join(shown)}'


def _chart(name: str, counts: Sequence[ClassCount], from_hour: int, to_hour: int) -> str:
    width_h, columns = bars(counts, from_hour, to_hour, BARS_MAX)
    stacks = [_stack(each) for each in columns]
    problems = sum(stack[2] for stack in stacks)
    svg = _svg(stacks, from_hour, width_h, f"events per {'hour' if width_h == 1 else f'{width_h} hours'}")
    said = f"{sum(map(sum, stacks)):,} events"
    if problems:
        said += f", {problems:,} {_many('problem', problems)}"
        alone = [(0, 0, stack[2]) for stack in stacks]
        svg += _svg(alone, from_hour, width_h, "problems only, on their own scale", height=70)
    return f'<div class="card"><h3>{escape(name)} <small>{said}</small></h3>{svg}</div>'


def _stack(column: Counter[Class]) -> tuple[int, int, int]:
    """Returns the parts of a bar: correct, late or pending, and problems."""
    correct = column[Class.CORRECT]
    waiting = column[Class.LATE] + column[Class.PENDING]
    return correct, waiting, sum(column.values()) - correct - waiting


def _svg(
    stacks: Sequence[tuple[int, int, int]], from_hour: int, width_h: int, label: str, height: int = CHART[1]
) -> str:
    width, left, top, bottom = CHART[0], 60, 16, 18
    most = max((sum(stack) for stack in stacks), default=0) or 1
    step = (width - left) / len(stacks)
    scale = (height - top - bottom) / most
    drawn = [
        f'<text x="0" y="{top}">{most:,}</text><text x="0" y="{height - bottom}">0</text>',
        f'<text x="{left}" y="10">{escape(label)}</text>',
        f'<line x1="{left}" x2="{width}" y1="{height - bottom}" y2="{height - bottom}" stroke="var(--line)"/>',
    ]
    for at, stack in enumerate(stacks):
        x, y = left + at * step, float(height - bottom)
        title = f"{hour_text(from_hour + at * width_h)}: {stack[0]:,} correct, {stack[1]:,} late or pending, " \
                f"{stack[2]:,} problems"  # fmt: skip
        for count, (_, colour) in zip(stack, _LEVELS, strict=True):
            if count:
                tall = max(count * scale, 1.5)  # keeps one problem among a million visible
                y -= tall
                drawn.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(step - 1, 1):.1f}" height="{tall:.1f}" '
                    f'style="fill:{colour}"><title>{title}</title></rect>'
                )
    drawn += (
        f'<text x="{left + at * step:.1f}" y="{height - 4}">{hour_text(from_hour + at * width_h)}</text>'
        for at in _ticks(len(stacks))
    )
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{"".join(drawn)}</svg>'


def _ticks(count: int) -> list[int]:
    """Returns the bars that get a label: at most six."""
    return list(range(0, count, max(-(-count // 6), 1)))


# -- tables ------------------------------------------------------------------------------------------------------
def _examples(examples: Iterable[ExampleFinding]) -> str:
    by_kind: dict[Class, list[ExampleFinding]] = {}
    for each in examples:
        by_kind.setdefault(each.kind, []).append(each)
    cards = []
    for kind in sorted(by_kind, key=list(Class).index):
        rows = "".join(_example(each) for each in by_kind[kind][:EXAMPLES_SHOWN])
        head = "<tr><th>event</th><th>hour</th><th>raw log</th><th>output</th><th>evidence</th></tr>"
        dot = f'<i class="dot" style="background:{_colour(kind)}"></i>'
        cards.append(f'<div class="card wide"><h3>{dot}{kind}</h3><table>{head}{rows}</table></div>')
    if not cards:
        return ""
    return f"<h2>First examples <small>(all are in problems/)</small></h2>{''.join(cards)}"


def _example(each: ExampleFinding) -> str:
    cells = (f"<code>{escape(text)}</code>" for text in (each.event, each.place, each.output, each.evidence))
    event, place, output, evidence = cells
    where = f"{hour_text(each.hour).replace(' ', '&nbsp;')}<br><small>{escape(each.datacentre)}</small>"
    return f"<tr><td>{event}</td><td>{where}</td><td>{place}</td><td>{output}</td><td>{evidence}</td></tr>"


def _ledger(figures: Figures) -> str:
    if not figures.ledger:
        return ""
    names = list(figures.ledger[0].counts)
    head = "".join(f'<th class="n">{escape(name)}</th>' for name in names)
    rows = "".join(
        f"<tr><td>{hour_text(each.hour)}</td><td>{escape(each.datacentre)}</td>"
        + "".join(f'<td class="n">{each.counts.get(name, 0):,}</td>' for name in names)
        + "</tr>"
        for each in figures.ledger
    )
    table = f"<table><tr><th>hour</th><th>datacentre</th>{head}</tr>{rows}</table>"
    differences = _differences(figures)
    return f'<h2>Ledger of the dispatchers</h2>{differences}<div class="card wide">{table}</div>'


def _differences(figures: Figures) -> str:
    """Shows differences between the ledger and the counts, unexplained ones first."""
    shown = sorted(figures.differences, key=lambda each: -each.unexplained)[:DIFFERENCES_SHOWN]
    if not shown:
        return '<p class="dim">The ledger agrees with the counts of logs and outputs.</p>'
    rows = "".join(
        f"<tr><td>{hour_text(each.hour)}</td><td>{escape(each.datacentre)}</td>"
        f'<td class="name">{escape(each.name)}</td>'
        f'<td class="n">{each.ledger:,}</td><td class="n">{each.counted:,}</td>'
        f"<td>{escape(', '.join(f'{why}: {count:,}' for why, count in each.explained.items()))}</td>"
        f'<td class="n">{each.unexplained:,}</td></tr>'
        for each in shown
    )
    head = (
        '<tr><th>hour</th><th>datacentre</th><th>count</th><th class="n">ledger</th><th class="n">counted</th>'
        '<th>may be explained by</th><th class="n">unexplained</th></tr>'
    )
    return f'<div class="card wide"><h3>Differences from the counts</h3><table>{head}{rows}</table></div>'


def _inputs(figures: Figures) -> str:
    rows = "".join(
        f'<tr><td>{escape(each.what)}</td><td>{escape(each.datacentre)}</td><td class="n">{each.files:,}</td>'
        f'<td class="n">{size(each.bytes)}</td><td class="n">{size(each.read)}</td></tr>'
        for each in figures.inputs
    )
    numbers = "".join(f'<th class="n">{name}</th>' for name in ("files", "size", "read"))
    head = f"<tr><th>what</th><th>datacentre</th>{numbers}</tr>"
    notes = "".join(f"<p>{escape(note)}</p>" for note in figures.notes)
    reused = (
        f"<p>Verified before, inputs unchanged: {escape(', '.join(figures.reused))}</p>" if figures.reused else ""
    )
    exported = (
        f", registry as of {escape(figures.exported_at)}" if figures.exported_at else ", without a registry export"
    )
    return (
        f'<h2>Inputs</h2><div class="card wide"><table>{head}{rows}</table>{notes}{reused}'
        f'<p class="dim">Made at {escape(figures.made_at)}{exported}.</p></div>'
    )


def _colour(kind: Class) -> str:
    if kind is Class.CORRECT:
        return "var(--good)"
    return "var(--wait)" if kind in GOOD else "var(--bad)"


def _many(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _share(part: int, whole: int) -> str:
    """Formats a share in percent; never as 100 % if anything is missing."""
    if not whole:
        return "-"
    return "100 %" if part == whole else f"{min(100 * part / whole, 99.9999):.4f} %"
