// Curves over time, and the ledger's bars. Lines differ by dashes, bars by patterns; numbers stand beside them.
import { $, el, svg, table } from "./dom.js";
import { NONE, count, known, rate, seconds, share, short, utc } from "./words.js";

const W = 320, H = 118, TOP = 16, FOOT = 16, DASHES = ["", "6 4", "1.5 3"], STROKES = ["line", "dashes", "dots"];
const SPANS = { history: [60, 900], day: [3600, 86400] };  // seconds at least and at most
const CURVES = [
  ["Events", rate, [["joined_per_s", "joined"], ["read_per_s", "read"]]],
  ["Line to join", seconds, [["p50_s", "p50"], ["p90_s", "p90"], ["p99_s", "p99"]], logarithmic],
  ["Event to join", seconds, [["age_p50_s", "p50"], ["age_p99_s", "p99"]], logarithmic],
  ["Cache hits", share, [["hit_ratio", "ratio"]], () => [0, 1, v => v]],
  ["Lag of foreign logs", seconds, [["lag_s", "lag"]]],
  ["Pending events", count, [["pending", "pending"]]],
];
const ROWS_MAX = 30, HEADROOM = 1.1;
let span = "history";

// Scales: values -> [at the bottom, at the top, value -> 0 to 1].
function linear(values) {
  const top = Math.max(...values, 0) * HEADROOM || 1;
  return [0, top, v => v / top];
}

// Percentiles lie far apart: each gets its room.
function logarithmic(values) {
  const above = values.filter(v => v > 0);
  if (!above.length) return linear(values);
  const low = Math.min(...above) / 1.5, high = Math.max(...above) * 1.5;
  return [low, high, v => v > low ? Math.log(v / low) / Math.log(high / low) : 0];
}

export function choose(next, s) {
  span = next;
  for (const button of $("span").children) button.setAttribute("aria-pressed", String(button.dataset.span === next));
  if (s) drawCharts(s);
}

export function drawCharts(s) {
  const points = s[span] ?? [], newest = s.at_s;
  $("charts").replaceChildren(...CURVES.map(([title, shown, lines, scale]) => curves(title, points, lines, shown, newest, scale ?? linear)));
  if (!$("as-table").open) return;
  const step = Math.max(1, Math.ceil(points.length / ROWS_MAX)), rows = points.filter((_, i) => (points.length - 1 - i) % step === 0);
  const columns = CURVES.flatMap(([title, shown, lines]) => lines.map(([key, label]) => [title + ": " + label, key, shown]));
  table("points", [["UTC", "l"], ...columns.map(([title]) => [title, ""])],
    rows.reverse().map(p => [utc(p.at_s), ...columns.map(([, key, shown]) => shown(p[key]))]), "no numbers yet");
}

function curves(title, points, lines, shown, newest, scale) {
  const figure = el("figure"), last = points.at(-1) ?? {}, [least, longest] = SPANS[span];
  const back = Math.min(Math.max(newest - (points[0]?.at_s ?? newest), least), longest);
  const now = lines.map(([key, label], i) =>
    (lines.length > 1 ? `${label} (${STROKES[i]}) ` : "") + shown(last[key])).join(", ");
  figure.append(el("figcaption", {}, el("b", {}, title), el("span", {}, now)));
  const values = points.flatMap(p => lines.map(([key]) => p[key])).filter(known);
  const [low, high, place] = scale(values);
  const root = svg(figure, "svg", { viewBox: `0 0 ${W} ${H}`, role: "img",
    "aria-label": `${title} over time, now ${now}, at most ${values.length ? shown(Math.max(...values)) : NONE}` });
  const bottom = H - FOOT, x = at => W - (newest - at) / back * W;
  svg(root, "path", { class: "grid", d: `M0 ${TOP}H${W}M0 ${(TOP + bottom) / 2}H${W}M0 ${bottom}H${W}` });
  svg(root, "text", { class: "small", x: 0, y: 11 }, values.length ? shown(high) : "no numbers yet");
  if (low > 0) svg(root, "text", { class: "small", x: W, y: bottom - 3, "text-anchor": "end" }, shown(low));
  svg(root, "text", { class: "small", x: 0, y: H - 2 }, seconds(back).replace(".0", "") + " ago");
  svg(root, "text", { class: "small", x: W, y: H - 2, "text-anchor": "end" }, "now");
  lines.forEach(([key], i) => {
    let d = "", pen = "M", run = 0;
    for (const p of points) {
      if (!known(p[key]) || x(p.at_s) < 0) { d += run === 1 ? "h1" : ""; pen = "M"; run = 0; continue; }
      d += pen + x(p.at_s).toFixed(1) + " " + (bottom - place(p[key]) * (bottom - TOP)).toFixed(1);
      pen = "L"; run++;
    }
    svg(root, "path", { class: "curve", d: d + (run === 1 ? "h1" : ""), "stroke-dasharray": DASHES[i] });
  });
  return figure;
}

// kind -> pattern: a drawing of 8 by 8, solid or empty.
const KINDS = ["joined", "unmatched", "filtered", "late", "rejected", "duplicate", "elsewhere", "pending"];
const PATTERNS = { joined: "solid", unmatched: "M0 0L8 8M-2 6L2 10M6 -2L10 2", filtered: "M0 4H8", late: "M4 0V8",
  rejected: "M0 0L8 8M0 8L8 0", duplicate: "M2 2h1.5v1.5h-1.5zM6 6h1.5v1.5h-1.5z", elsewhere: "empty",
  pending: "M0 1.5H8M1.5 0V8" };
const HOURS = 24, BARS_H = 150;
let barsSaid = "";

function patterns(root, prefix) {
  const defs = svg(root, "defs");
  for (const kind of KINDS) {
    if (!PATTERNS[kind].startsWith("M")) continue;
    const one = svg(defs, "pattern", { id: prefix + kind, width: 8, height: 8, patternUnits: "userSpaceOnUse" });
    svg(one, "path", { class: "stroke", d: PATTERNS[kind] });
  }
}

function block(root, prefix, kind, place) {
  svg(root, "rect", { class: "pattern", ...place });
  const fill = PATTERNS[kind];
  if (fill === "solid") svg(root, "rect", { class: "ink", ...place });
  else if (fill !== "empty") svg(root, "rect", { ...place, fill: `url(#${prefix}${kind})` });
}

export function drawBars(ledger) {
  const hours = ledger.hours.filter(h => known(h.hour_s)).slice(0, HOURS).reverse();
  const said = JSON.stringify(hours) + innerWidth;
  if (said === barsSaid) return;
  barsSaid = said;
  if (!hours.length) { $("bars").replaceChildren(); return; }
  const width = Math.min(Math.max($("bars").clientWidth, 300), 1048), left = 44;
  const most = Math.max(...hours.map(h => KINDS.reduce((n, k) => n + (h[k] ?? 0), 0)), 1);
  const kinds = KINDS.filter(k => hours.some(h => h[k]));
  const root = svg(null, "svg", { viewBox: `0 0 ${width} ${BARS_H + 20}`, role: "img",
    "aria-label": `events of the last ${hours.length} hours by verdict; the table below has the numbers` });
  patterns(root, "bar-");
  svg(root, "path", { class: "grid", d: `M${left} 8H${width}M${left} ${8 + (BARS_H - 8) / 2}H${width}` });
  svg(root, "text", { class: "small", x: left - 6, y: 13, "text-anchor": "end" }, short(most));
  svg(root, "text", { class: "small", x: left - 6, y: 13 + (BARS_H - 8) / 2, "text-anchor": "end" }, short(most / 2));
  svg(root, "text", { class: "small", x: left - 6, y: BARS_H, "text-anchor": "end" }, "0");
  const step = Math.min((width - left) / hours.length, 64), every = Math.ceil(38 / step);
  hours.forEach((h, i) => {
    let y = BARS_H;
    for (const kind of kinds) {
      const height = (h[kind] ?? 0) / most * (BARS_H - 8);
      if (height <= 0) continue;
      y -= height;
      block(root, "bar-", kind, { x: left + i * step + step * 0.12, y, width: step * 0.76, height: Math.max(height, 0.5) });
    }
    if ((hours.length - 1 - i) % every === 0) {
      svg(root, "text", { class: "small", x: left + (i + 0.5) * step, y: BARS_H + 16, "text-anchor": "middle" },
        utc(h.hour_s).slice(11, 16));
    }
  });
  svg(root, "path", { class: "curve", d: `M${left} ${BARS_H}H${width}` });
  const keys = el("ul", { class: "keys" });
  for (const kind of kinds) {
    const item = el("li"), square = svg(item, "svg", { viewBox: "0 0 18 14", "aria-hidden": "true" });
    patterns(square, "key-" + kind + "-");
    block(square, "key-" + kind + "-", kind, { x: 1, y: 1, width: 16, height: 12 });
    item.append(kind);
    keys.append(item);
  }
  $("bars").replaceChildren(root, keys);
}
