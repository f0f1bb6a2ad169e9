// The search box: what became of one event. The answer is that of `photon explain -o json`; it is shown as it comes.
import { $, el } from "./dom.js";

const LIST_MAX = 200, DEPTH_MAX = 6;
const TIME_KEYS = ["at", "time", "when", "at_s", "time_s", "at_ns"], PLACE_KEYS = ["where", "place"], WHAT_KEYS = ["what", "text"];
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
    shown = [el("p", {}, "The status server does not answer. Is photon status serve running?")];
  }
  if (mine === asked) box.replaceChildren(el("h3", {}, "Event ", el("code", {}, id)), ...shown);
}

function failure(status, why) {
  const line = String(why ?? "").trim().split("\n")[0].slice(0, 300);
  if (status === 404) return "Nothing here can explain events: this server is of another release. Use photon explain in a terminal.";
  return `It could not be found out (${status}). ${line}`;
}

function answer(said) {
  if (Array.isArray(said)) return [value(said, 0)];
  const { steps, ...rest } = said, parts = [];
  const verdict = rest.verdict ?? rest.summary;
  if (typeof verdict === "string") parts.push(el("p", {}, el("b", {}, verdict)));
  if (Array.isArray(steps)) {
    parts.push(steps.length ? el("ol", { class: "steps" }, ...steps.slice(0, LIST_MAX).map(step)) :
      el("p", {}, "No trace of it was found."));
  }
  const left = Object.entries(rest).filter(([key]) => key !== "summary");
  if (left.length) parts.push(value(Object.fromEntries(left), 0));
  return parts;
}

function pick(one, keys) {
  const key = keys.find(k => one[k] !== null && one[k] !== undefined && one[k] !== "");
  return key === undefined ? ["", ""] : [key, one[key]];
}

function step(one) {
  if (one === null || typeof one !== "object") return el("li", {}, String(one));
  const item = el("li"), [timeKey, time] = pick(one, TIME_KEYS), [placeKey, place] = pick(one, PLACE_KEYS), [whatKey, what] = pick(one, WHAT_KEYS);
  if (timeKey) item.append(el("time", {}, moment(timeKey, time)));
  if (placeKey) item.append(el("span", { class: "place" }, plain(place)));
  if (whatKey) item.append(el("b", {}, plain(what)));
  const rest = Object.entries(one).filter(([k, v]) => ![timeKey, placeKey, whatKey].includes(k) && v !== null && v !== "");
  if (rest.length) item.append(value(Object.fromEntries(rest), 1));
  return item;
}

function moment(key, v) {
  if (typeof v !== "number") return plain(v);
  const s = key.endsWith("_ns") ? v / 1e9 : v;
  return Math.abs(s) < 8e12 ? new Date(s * 1000).toISOString().replace("T", " ").slice(0, 23) : String(v);
}

const plain = v => v !== null && typeof v === "object" ? JSON.stringify(v) : String(v);

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
