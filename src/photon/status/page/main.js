// Asks for status.json again and again, shows it, and says when what is shown is old.
import { choose, drawBars, drawCharts } from "./charts.js";
import { $, el, seen } from "./dom.js";
import { listen } from "./explain.js";
import { drawFlow } from "./flow.js";
import { drawAlarms, drawPart, drawRegistry } from "./sections.js";
import { many, seconds, utc } from "./words.js";

const EVERY_MS = 2000, HIDDEN_MS = 15000, FIRST_MS = 250, GATHER_MS = 150, PATIENCE_MS = 8000, OLD_S = 10;
let last = null;       // what is shown
let heardAt = 0;       // when it came; this machine's clock, which need not agree with the server's
let timer = 0;
let trouble = "";      // why the last question had no good answer

function show(s) {
  last = s;
  const up = s.processes.filter(p => p.up).length;
  document.title = (s.alarms.length ? `(${s.alarms.length}) ` : "") + "Photon " + s.datacentre;
  $("title").textContent = "Photon " + seen(s.datacentre);
  $("seen").textContent = `${up} of ${many(s.processes.length, "process answers", "processes answer")} · ${utc(s.at_s)} UTC`;
  $("release").textContent = "release " + seen(s.version);
  $("starting").hidden = true;
  drawAlarms(s.alarms);
  for (const part of [() => drawFlow(s), () => drawCharts(s), () => drawBars(s.ledger), () => drawRegistry(s.registry),
    ...s.parts.map(each => () => drawPart(each))]) {
    try { part(); } catch (error) { console.error(error); }  // one part that cannot be drawn does not blank the others
  }
  document.body.dataset.shown = s.at_s;
}

function starting(s) {
  document.title = $("title").textContent = "Photon " + seen(s.datacentre);
  $("release").textContent = "release " + seen(s.version);
  $("starting").hidden = false;
  $("starting").querySelector("ul").replaceChildren(...s.starting.map(name => el("li", {}, name)));
  $("state").textContent = `asking ${many(s.starting.length, "process", "processes")} for the first time …`;
}

// Every second, whether an answer has come or not.
function judge() {
  const state = $("state"), age = last ? (performance.now() - heardAt) / 1000 + (last.age_s ?? 0) : null;
  const old = age !== null && age > OLD_S || last === null && trouble !== "";
  document.body.classList.toggle("old", old);
  let said = "";
  if (old) {
    const why = trouble || "The server answers, but has not asked the processes lately.";
    said = (last ? `Old numbers, from ${seconds(Math.floor(age / 10) * 10)} ago. ` : "") + why;
  }
  const line = $("old");
  line.hidden = !old;
  if (line.textContent !== said) line.textContent = said;
  if (!last) {
    if (old) state.textContent = "no status yet";
    return;
  }
  const alarms = last.alarms.length, word = old ? "not known" : alarms ? "attention: " + many(alarms, "alarm") : "all is well";
  if (state.textContent !== word) state.textContent = word;
  state.className = old ? "bad" : alarms ? "bad" : "well";
}

async function ask() {
  let next = EVERY_MS;
  try {
    const reply = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    const said = await reply.json().catch(() => null);
    if (reply.ok && said?.flow) {
      heardAt = performance.now();
      trouble = "";
      show(said);
      // When there is something new, a moment after it was gathered: asked out of step it would be shown 2 s later.
      next = Math.min(Math.max((said.next_s ?? EVERY_MS / 1000) * 1000 + GATHER_MS, FIRST_MS), EVERY_MS + GATHER_MS);
    } else if (said?.starting) {
      starting(said);
      trouble = "";
      next = FIRST_MS;
    } else {
      trouble = `The status server answers with an error (${reply.status}).`;
    }
  } catch {
    trouble = "The status server does not answer; is photon serve status running, and the network up?";
  }
  judge();
  clearTimeout(timer);
  timer = setTimeout(ask, document.hidden ? HIDDEN_MS : next);
}

$("span").addEventListener("click", event => event.target.dataset.span && choose(event.target.dataset.span, last));
$("as-table").addEventListener("toggle", () => last && drawCharts(last));
window.addEventListener("resize", () => { if (last) { drawFlow(last); drawBars(last.ledger); } });
document.addEventListener("visibilitychange", () => document.hidden || ask());
listen();
setInterval(judge, 1000);
ask();
