// The search box: what became of one event. The answer is that of `photon explain -o json`; it is shown as it comes.
import { $, el, seen } from "./dom.js";

const LIST_MAX = 200, DEPTH_MAX = 6;
const TIME_KEYS = ["at", "time", "at_s", "at_ns"], PLACE_KEYS = ["datacentre", "who", "where", "place"];
const FIRST = ["step", "what", ...TIME_KEYS, ...PLACE_KEYS, "file", "offset"], SAID = ["verdict", "summary", "steps", "contradictions", "missing", "upstream"];
let asked = 0;

export function explain(id) {
  $("event-id").value = id;
  ask(id.trim());
}

async function ask(id) {
  if (!id) return;
  const mine = ++asked, box = $("explained");
  box.replaceChildren(el("p", {}, "Asking …"));
  let shown;
  try {
    const reply = await fetch("explain.json?id=" + encodeURIComponent(id), { cache: "no-store" });
    const text = await reply.text();
    let said = null;
    try { said = JSON.parse(text); } catch { /* not JSON: an error's line of text */ }
    if (reply.ok && said !== null) shown = answer(said);
    else shown = [el("p", {}, failure(reply.status, said?.error ?? said?.problem ?? text))];
  } catch {
    shown = [el("p", {}, "The status server does not answer. Is photon serve status running?")];
  }
  if (mine === asked) box.replaceChildren(el("h3", {}, "Event ", el("code", {}, id)), ...shown);
}

function failure(status, why) {
  const line = String(why ?? "").trim().split("\n")[0].slice(0, 300);
  if (status === 404) return "This server cannot explain events: it is another release. Use photon explain in a terminal.";
  return `The search failed (${status}). ${line}`;
}

function answer(said) {
  if (said === null || typeof said !== "object" || Array.isArray(said)) return [value(said, 0)];
  const parts = [], summary = [said.verdict, said.summary].filter(v => typeof v === "string" && v);
  if (summary.length) parts.push(el("p", {}, el("b", {}, summary[0]), summary.length > 1 ? ": " + summary[1] : ""));
  if (some(said.contradictions)) parts.push(el("p", { class: "wrong" }, "▲ This should not be:"), value(said.contradictions, 0));
  if (some(said.steps)) parts.push(el("ol", { class: "steps" }, ...said.steps.slice(0, LIST_MAX).map(step)));
  if (some(said.missing)) parts.push(el("p", {}, "Not every process answered, or not everything was searched:"),
    el("ul", {}, ...said.missing.slice(0, LIST_MAX).map(one => el("li", {}, one?.why ? `${plain(one.where)}: ${plain(one.why)}` : plain(one)))));
  if (some(said.upstream)) said.upstream.slice(0, LIST_MAX).forEach(one =>
    parts.push(el("p", {}, `Made of ${plain(one?.event_id)} of the join ${plain(one?.join)}:`), ...answer(one)));
  const left = Object.entries(said).filter(([key]) => !SAID.includes(key));
  if (left.length) parts.push(el("details", {}, el("summary", {}, "Everything else that was said"), value(Object.fromEntries(left), 0)));
  return parts;
}

const some = v => Array.isArray(v) && v.length > 0;
const given = v => v !== null && v !== undefined && v !== "";

function step(one) {
  if (one === null || typeof one !== "object") return el("li", {}, plain(one));
  const item = el("li"), time = TIME_KEYS.find(key => given(one[key])), place = PLACE_KEYS.map(key => one[key]).filter(given).map(plain);
  if (time) item.append(el("time", {}, moment(time, one[time])));
  if (place.length) item.append(el("span", { class: "place" }, [...new Set(place)].join(", ")));
  const [kind, what] = [one.step, one.what].map(v => given(v) ? plain(v) : "");
  item.append(el("b", {}, !kind || what.startsWith(kind) ? what : what ? `${kind}: ${what}` : kind));
  if (given(one.file)) item.append(el("div", {}, plain(one.file) + (given(one.offset) ? " @ " + plain(one.offset) : "")));
  const rest = Object.entries(one).filter(([key, v]) => !FIRST.includes(key) && given(v));
  const facts = rest.filter(([, v]) => typeof v !== "object"), deep = rest.filter(([, v]) => typeof v === "object");
  if (facts.length) item.append(el("div", { class: "note" }, facts.map(([key, v]) => `${key.replaceAll("_", " ")} ${plain(v)}`).join(" · ")));
  if (deep.length) item.append(value(Object.fromEntries(deep), 1));
  return item;
}

function moment(key, v) {
  if (typeof v !== "number") return plain(v);
  const s = key.endsWith("_ns") ? v / 1e9 : v;
  return Math.abs(s) < 8e12 ? new Date(s * 1000).toISOString().replace("T", " ").slice(0, 23) : String(v);
}

const plain = v => seen(v !== null && typeof v === "object" ? JSON.stringify(v) : String(v));

function value(v, depth) {
  if (v === null || typeof v !== "object" || depth >= DEPTH_MAX) return document.createTextNode(plain(v));
  if (Array.isArray(v)) {
    if (!v.length) return document.createTextNode("none");
    return el("ul", {}, ...v.slice(0, LIST_MAX).map(each => el("li", {}, value(each, depth + 1))));
  }
  const list = el("dl");
  for (const [key, each] of Object.entries(v).slice(0, LIST_MAX)) {
    if (each === null || each === undefined) continue;
    const at = typeof each === "number" && (key.endsWith("_s") || key.endsWith("_ns")) && each > 1e9;
    list.append(el("dt", {}, key.replaceAll("_", " ")), el("dd", {}, at ? moment(key, each) : value(each, depth + 1)));
  }
  return list;
}

export function listen() {
  $("explain").addEventListener("submit", event => {
    event.preventDefault();
    ask($("event-id").value.trim());
  });
}
