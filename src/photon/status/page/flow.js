// The picture of the data flow. Built once for each layout and set of datacentres; then only its texts change.
import { $, svg } from "./dom.js";
import { bytes, count, known, many, rate, seconds, share, short } from "./words.js";

const W = 152, H = 62, CELLS = 10, TALL_BELOW = 860, OTHERS = 3;
const LOGS = "logs", PROCESS = "process", STORE = "store";
const SHAPES = { foreign: LOGS, dispatcher: PROCESS, joiner: PROCESS, output: LOGS, primary: LOGS, store: STORE,
  registry: STORE, verifier: PROCESS };
const TALLER = { registry: 24 };
const SERVICES = { dispatcher: "dispatcher", joiner: "joiner", store: "eventstore", registry: "registry",
  verifier: "verifier" };
// at: left and top of each box; edges: x1 y1 x2 y2, then x, y and anchor of the first line of its text.
const WIDE = { left: 0, width: 984, height: 404,
  at: { foreign: [6, 14], dispatcher: [278, 14], joiner: [552, 14], output: [826, 14],
        primary: [6, 200], store: [278, 200], registry: [552, 200], verifier: [826, 200] },
  others: [[552, 336], [720, 336], [384, 336]], legend: [6, 330],
  edges: { read: [158, 45, 278, 45, 216, 34, "middle"], send: [430, 45, 552, 45, 490, 34, "middle"],
           write: [704, 45, 826, 45, 764, 34, "middle"], index: [158, 231, 278, 231, 216, 220, "middle"],
           look: [391, 195, 580, 76, 458, 134, "end"], register: [640, 76, 640, 192, 650, 134, "start"],
           verify: [902, 76, 902, 200, 892, 134, "end"], clear: [826, 231, 704, 231, 766, 220, "middle"] } };
const TALL = { left: -14, width: 366, height: 726,
  at: { foreign: [6, 10], primary: [194, 10], dispatcher: [6, 152], store: [194, 152], joiner: [100, 294],
        registry: [6, 436], output: [194, 436], verifier: [194, 594] },
  others: [[6, 594]], legend: [6, 682],
  edges: { read: [82, 72, 82, 152, 90, 104, "start"], index: [270, 72, 270, 144, 262, 104, "end"],
           send: [82, 214, 136, 294, 92, 254, "end"], look: [270, 220, 216, 294, 260, 256, "start"],
           register: [136, 356, 87, 428, 92, 390, "end"], write: [216, 356, 270, 436, 260, 392, "start"],
           verify: [270, 498, 270, 594, 262, 542, "end"], clear: [194, 606, 130, 528, 150, 578, "end"] } };
let built = null;  // what the picture was built for, and its changing parts

export function drawFlow(s) {
  const tall = window.innerWidth < TALL_BELOW, others = (s.others ?? []).slice(0, tall ? 1 : OTHERS);
  const key = JSON.stringify([tall, others.map(o => o.datacentre)]);
  if (built?.key !== key) built = build(key, tall ? TALL : WIDE, others);
  const texts = [];
  for (const [name, lines] of Object.entries(edgeTexts(s))) {
    texts.push(name + " " + lines.join(" "));
    built.edges[name].lines.forEach((node, i) => put(node, lines[i] ?? ""));
  }
  for (const [name, lines] of Object.entries(boxTexts(s))) {
    built.boxes[name].lines.forEach((node, i) => put(node, lines[i] ?? ""));
    const of = s.processes.filter(p => p.service === SERVICES[name]), silent = of.filter(p => p.up === false).length;
    put(built.boxes[name].mark, silent ? `▲ ${silent}` : "");
    built.boxes[name].group.setAttribute("class", silent ? "bad" : "");
    if (silent) texts.push(`${name}: ${silent} of ${of.length} silent`);
  }
  others.forEach((o, i) => {
    const box = built.others[i];
    const away = o.trusted === false;
    put(box.lines[0], o.datacentre.length > 12 ? o.datacentre.slice(0, 11) + "…" : o.datacentre);
    put(box.lines[1], away ? "its work is done here" : "joins its share");
    put(box.lines[2], rate(o.joined_per_s) + " elsewhere");
    put(box.mark, away ? "▲ away" : "");
    box.group.setAttribute("class", away ? "bad" : "");
    texts.push(`datacentre ${o.datacentre} ${away ? "away" : "at work"}`);
  });
  cells(s.registry.shards);
  const f = s.flow, v = f.verdicts_per_s;
  const moving = { read: f.read_per_s, index: f.primary_events_per_s, send: f.read_per_s, look: f.read_per_s,
    register: v.joined, write: v.joined, verify: f.published_bytes_per_s };
  for (const [name, value] of Object.entries(moving)) move(built.edges[name], value);
  $("flow").setAttribute("aria-label", "data flow: " + texts.join("; "));
}

function edgeTexts(s) {
  const f = s.flow, commits = s.registry.shards.map(x => x.commit_p50_s).filter(known);
  return {
    read: [rate(f.read_per_s), "lag " + seconds(f.foreign_lag_s), bytes(f.foreign_lag_bytes)],
    send: [many(f.batches_in_flight, "batch", "batches"), short(f.waiting_for_home) + " left", "to home"],
    look: ["look-ups", "hits " + share(f.hit_ratio)],
    index: [rate(f.primary_events_per_s), "lag " + seconds(f.primary_lag_s), bytes(f.primary_lag_bytes)],
    register: [short(f.registry_queued_ids) + " queued",
      "commit " + seconds(commits.length ? Math.max(...commits) : null)],
    write: [rate(f.verdicts_per_s.joined), "joined"],
    verify: [bytes(f.uncleared_bytes), "to clear"],
    clear: ["clears"] };
}

function boxTexts(s) {
  const f = s.flow, r = s.registry;
  return {
    foreign: ["Foreign logs", many(f.foreign_logs, "log")],
    dispatcher: ["Dispatcher", count(f.pending) + " pending", count(f.retry_store_events) + " in retry store"],
    joiner: ["Joiners", count(f.joiner_open_ids) + " registering", bytes(f.joiner_redo_bytes) + " redo log"],
    output: ["Output", bytes(f.published_bytes) + " published",
      known(f.watermark_lag_s) ? `watermark ${seconds(f.watermark_lag_s)} ago` : ""],
    primary: ["Primary logs", known(f.primary_logs) ? many(f.primary_logs, "log") : ""],
    store: ["Event store", bytes(f.cache_bytes) + " cached", rate(f.log_reads_per_s).replace("/s", " log reads/s")],
    registry: ["IdRegistry", count(r.shards.reduce((n, x) => n + x.ids, 0)) + " ids",
      `${r.replicas_up} of ${r.replicas} replicas`],
    verifier: ["Verifier", bytes(f.unchecked_bytes) + " unchecked"] };
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function build(key, layout, others) {
  const root = $("flow");
  root.replaceChildren();
  root.setAttribute("viewBox", `${layout.left} 0 ${layout.width} ${layout.height}`);
  root.setAttribute("class", layout === TALL ? "tall" : "");
  const defs = svg(root, "defs");
  const arrow = svg(defs, "marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8,
    markerHeight: 8, orient: "auto" });
  svg(arrow, "path", { class: "arrow", d: "M0 0L8 4L0 8z" });
  const hatch = svg(defs, "pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse",
    patternTransform: "rotate(45)" });
  svg(hatch, "path", { class: "stroke", d: "M0 0V5" });
  const found = { key, edges: {}, boxes: {}, others: [] };
  for (const [name, [x1, y1, x2, y2, tx, ty, anchor]] of Object.entries(layout.edges)) {
    const d = `M${x1} ${y1}L${x2} ${y2}`;
    svg(root, "path", { class: "edge", d, "marker-end": "url(#arrow)" });
    const flat = y1 === y2, lines = [];  // of a level edge the first line stands above it, the others below
    for (let i = 0; i < 3; i++) {
      lines.push(svg(root, "text", { x: tx, y: flat && i ? ty + 13 + 16 * i : ty + 15 * i, "text-anchor": anchor,
        "data-edge": name }));
    }
    found.edges[name] = { d, lines, drop: null, speed: 0 };
  }
  for (const [name, [x, y]] of Object.entries(layout.at)) {
    found.boxes[name] = box(root, x, y, SHAPES[name], TALLER[name] ?? 0);
  }
  found.cellsAt = layout.at.registry;
  found.cells = svg(found.boxes.registry.group, "g");
  layout.others.slice(0, others.length).forEach(([x, y]) => {
    const [rx, ry] = layout.at.registry;
    const from = Math.min(Math.max(x + W / 2, rx + 12), rx + W - 12);
    svg(root, "path", { class: "edge", d: `M${x + W / 2} ${y}L${from} ${ry + H + TALLER.registry + 7}`,
      "marker-end": "url(#arrow)", "stroke-dasharray": "2 3" });
    found.others.push(box(root, x, y, PROCESS, 0));
  });
  const [lx, ly] = layout.legend;
  const words = ["dashed box, ▲ 2: 2 of its processes do not answer", "small squares: shards; hatched: no leader"];
  words.forEach((text, i) => svg(root, "text", { class: "small", x: lx, y: ly + 14 + 17 * i }, text));
  return found;
}

function box(root, x, y, shape, more) {
  const group = svg(root, "g"), h = H + more;
  if (shape === LOGS) {
    svg(group, "rect", { class: "node", x: x + 4, y: y - 4, width: W, height: h });
    svg(group, "rect", { class: "node", x, y, width: W, height: h });
  } else if (shape === STORE) {
    svg(group, "path", { class: "node", d: `M${x} ${y}V${y + h}a${W / 2} 7 0 0 0 ${W} 0V${y}` });
    svg(group, "ellipse", { class: "node", cx: x + W / 2, cy: y, rx: W / 2, ry: 7 });
  } else {
    svg(group, "rect", { class: "node", x, y, width: W, height: h, rx: 9 });
  }
  const lines = [0, 1, 2].map(i => svg(group, "text", { x: x + 10, y: y + 21 + 16 * i, class: i ? "small" : "name" }));
  const mark = svg(group, "text", { x: x + W - 8, y: y + 21, class: "mark", "text-anchor": "end" });
  return { group, lines, mark };
}

// A square for each shard, in the registry's box.
function cells(shards) {
  const said = JSON.stringify(shards.map(x => [x.shard, !!x.leader, !!x.prepared]));
  if (built.cellsSaid === said) return;
  built.cellsSaid = said;
  built.cells.replaceChildren();
  const [x, y] = built.cellsAt, fits = shards.length > CELLS ? CELLS - 3 : shards.length;
  shards.slice(0, fits).forEach((shard, i) => svg(built.cells, "rect", { class: "cell", x: x + 10 + 13 * i, y: y + 64,
    width: 10, height: 12 }).classList.toggle("headless", !shard.leader));
  if (shards.length > fits) {
    svg(built.cells, "text", { class: "small", x: x + 12 + 13 * fits, y: y + 74 }, `+${shards.length - fits}`);
  }
}

// A drop that runs along an edge while something flows: the faster the more. Not where motion is unwelcome (style.css).
function move(edge, value) {
  const speed = value > 0 ? Math.min(4, 1 + Math.floor(Math.log10(Math.max(value, 1)))) : 0;
  if (edge.speed === speed) return;
  edge.speed = speed;
  edge.drop?.remove();
  edge.drop = null;
  if (!speed) return;
  edge.drop = svg($("flow"), "circle", { class: "drop", r: 4 });
  svg(edge.drop, "animateMotion", { path: edge.d, dur: `${(3.2 / speed).toFixed(1)}s`, repeatCount: "indefinite" });
}
