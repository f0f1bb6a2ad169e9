// Alarms and tables.
import { $, el, seen, table } from "./dom.js";
import { explain } from "./explain.js";
import { NONE, bytes, count, known, many, rate, seconds, share, utc } from "./words.js";

const LEDGER = ["read", "joined", "filtered", "unmatched", "late", "rejected", "elsewhere", "duplicate", "pending"];
let alarmsSaid = "";

export function drawAlarms(alarms) {
  const said = JSON.stringify(alarms);
  if (said === alarmsSaid) return;
  alarmsSaid = said;
  $("alarms").hidden = !alarms.length;
  $("alarms").querySelector("ul").replaceChildren(...alarms.map(a =>
    el("li", {}, el("b", {}, a.where), ": " + a.what, el("span", { class: "do" }, "→ " + a.todo))));
}

export function drawRates(s) {
  const f = s.flow, v = f.verdicts_per_s;
  $("rates").textContent = s.window_s > 0 ?
    `Rates are of the last ${seconds(s.window_s)}. Elsewhere ${rate(v.elsewhere)}, unmatched ${rate(v.unmatched)}, ` +
    `filtered ${rate(v.filtered)}, late ${rate(v.late)}, wasted joins ${rate(f.wasted_per_s)}.` :
    "Rates are known after the second look, in a moment.";
  const up = (s.upstream ?? []).map(u => `${u.upstream} (${u.side}) ${rate(u.events_per_s)}, ${bytes(u.lag_bytes)} behind`);
  if (up.length) $("rates").append(` From other joins: ${up.join("; ")}.`);
}

export function drawPending(s) {
  const f = s.flow, oldest = s.oldest ?? [];
  $("pending").textContent = f.pending ? `${many(f.pending, "event has", "events have")} no verdict; the oldest was read ` +
    `${seconds(f.oldest_pending_s)} ago. ${many(f.retry_store_events, "is", "are")} in the retry store, the oldest for ` +
    `${seconds(f.retry_store_oldest_s)}.` : "Every event that was read has its verdict.";
  table("oldest", "oldest pending events", [["event", "id"], ["read", ""], ["tries", ""], ["next try", ""], ["why it waits", "long"], ["log", "id"]],
    oldest.map(e => [idButton(e.event_id), seconds(e.age_s) + " ago", count(e.tries),
      known(e.next_try_s) ? (e.next_try_s <= 0 ? "now" : "in " + seconds(e.next_try_s)) : NONE, e.reason, `${e.log} @ ${e.offset}`]),
    f.pending ? "not known" : "none");
  table("lag", "logs that wait longest", [["log", "id"], ["not read", ""], ["for", ""]],
    s.lag.map(l => [l.log, bytes(l.bytes), seconds(l.seconds)]), "every log is read to its end");
}

function idButton(id) {
  const button = el("button", { type: "button", class: "link", title: "explain this event" }, id);
  button.addEventListener("click", () => {
    explain(id);
    $("explain").scrollIntoView({ block: "start" });
  });
  return button;
}

export function drawLatency(latency) {
  const rows = [["from line to join", latency.join], ["from event to join", latency.event_age]];
  table("latency", "latency of the last minute", [["", "l"], ["p50", ""], ["p90", ""], ["p99", ""], ["within 1 s", ""], ["10 s", ""], ["60 s", ""]],
    rows.map(([name, l]) => [name, seconds(l.p50_s), seconds(l.p90_s), seconds(l.p99_s), ...["1", "10", "60"].map(b => share(l.within[b]))]));
}

export function drawLedger(ledger) {
  const hours = ledger.hours.map(h => [known(h.hour_s) ? utc(h.hour_s) : "no readable time", ...LEDGER.map(k => count(h[k]))]);
  const classes = hours.length ? ["sum"] : [];
  if (hours.length) hours.unshift(["all hours", ...LEDGER.map(k => count(ledger.total[k]))]);
  table("ledger", "ledger by hour", [["hour", "l"], ...LEDGER.map(k => [k, ""])], hours, "nothing was read yet", classes);
}

export function drawRegistry(registry) {
  const change = registry.change, moving = change && (change.stage === "preparing" || !change.settled);
  $("registry").textContent = `Config ${registry.config ?? NONE}, ${registry.replicas_up} of ${registry.replicas} replicas answer.` +
    (moving ? "" : " No change of the shards is under way.");
  const parts = [];
  if (moving) {
    const ready = registry.shards.filter(x => known(x.prepared) && x.prepared >= change.config).length, all = registry.shards.length;
    parts.push(el("p", {}, `Resharding to config ${change.config}: ${change.stage}, for events from ${utc(change.starts_s)} UTC` +
      (change.added?.length ? `; new: ${change.added.join(", ")}` : "") + (change.leaving?.length ? `; leaving: ${change.leaving.join(", ")}` : "") +
      (change.reason ? `. ${change.reason}` : ".")));
    if (change.stage === "preparing" && all) {
      const label = `${ready} of ${all} shards are prepared`;
      parts.push(el("p", {}, el("progress", { max: all, value: ready, "aria-label": label }), " " + label));
    }
  }
  $("change").replaceChildren(...parts);
  table("shards", "shards", [["shard", ""], ["leader", "l"], ["ids", ""], ["size", ""], ["boundary (UTC)", ""], ["until (UTC)", ""], ["commit p50", ""], ["p99", ""]],
    registry.shards.map(x => [x.shard, x.leader || "▲ none", count(x.ids), bytes(x.bytes), utc(x.boundary_s), utc(x.until_s),
      seconds(x.commit_p50_s), seconds(x.commit_p99_s)]), "no replica answers", registry.shards.map(x => x.leader ? "" : "bad"));
}

export function drawTables(t) {
  $("tables-part").hidden = !t;
  if (!t) return;
  const oracle = t.oracle ? ` The oracle is led by ${t.oracle.leader ?? "▲ nobody"}, ${rate(t.oracle.timestamps_per_s)} timestamps.` : "";
  $("tables").textContent = seen(t.processes ? `${t.up} of ${many(t.processes, "process of observers answers", "processes of observers answer")}` +
    `${t.stores_silent ? ", ▲ a store does not answer" : ""}: ${t.observers.join(", ") || NONE}. ${rate(t.runs_per_s)} runs, ` +
    `${rate(t.conflicts_per_s)} conflicts, ${rate(t.failed_per_s)} failed. ${many(t.dirty_cells, "cell waits", "cells wait")}` +
    `${t.dirty_cells ? `, the oldest for ${seconds(t.oldest_dirty_s)}` : ""}.${oracle}` : `No observers are in the deployment file.${oracle}`);
}

export function drawSlots(s) {
  table("slots", "slots", [["slot", "l"], ["state", "long"], ["joined", ""], ["published", ""], ["to clear", ""], ["to check", ""], ["owned ids", ""],
    ["oldest", ""], ["redo log", ""], ["alarms", ""]], s.slots.map(x => [x.slot, x.problem || x.state, count(x.joined),
    bytes(x.published_bytes), bytes(x.published_bytes - x.cleared_bytes), bytes(x.published_bytes - x.checked_bytes),
    count(x.owned_ids), seconds(x.owned_oldest_s), bytes(x.redo_bytes), x.alarms]), "no verifier answers",
    s.slots.map(x => x.problem || x.alarms ? "bad" : ""));
  const copies = s.copies ?? [];
  $("copies-part").hidden = !copies.length;
  table("copies", "copies", [["slot", "l"], ["copy", "long"], ["behind", ""]],
    copies.map(c => [c.slot, c.state, bytes(c.behind_bytes)]), "none", copies.map(c => c.bypassed || c.trouble ? "bad" : ""));
}

// A row for each stage; what is of all of them stands in the first one.
export function drawComputations(computations) {
  $("computations-part").hidden = !computations.length;
  const rows = computations.flatMap(c => (c.stages.length ? c.stages : [{}]).map((s, i) => [c, s, i === 0]));
  table("computations", "computations", [["computation", "l"], ["stage", "long"], ["watermark (UTC)", ""], ["behind", ""], ["events wait", ""],
    ["records", ""], ["late", ""], ["put aside", ""], ["processes", ""], ["state", "long"]], rows.map(([c, s, head]) => [head ? c.compute : "",
    s.computation ? `${s.stage} ${s.computation}` : NONE, s.watermark ?? NONE, seconds(s.lag_s), count(s.waiting),
    ...(head ? [rate(c.records_per_s), count(c.late), count(c.aside), `${c.processes} for ${many(c.intervals, "interval")}`,
      c.alarms[0]?.what ?? (c.running ? "computes" : "begins")] : ["", "", "", "", ""])]),
    "none", rows.map(([c]) => c.alarms.length ? "bad" : ""));
}

export function drawProcesses(processes) {
  const rank = p => p.up ? 1 : 0, rows = [...processes].sort((a, b) => rank(a) - rank(b));  // the silent ones first
  table("processes", "processes", [["process", "l"], ["datacentre", "l"], ["state", "l"], ["memory", ""], ["files", ""], ["since", ""], ["address", "l"]],
    rows.map(p => [p.service + " " + p.process, p.datacentre || NONE, p.up ? "up" : "▲ silent", bytes(p.memory_bytes),
      count(p.open_files), seconds(p.uptime_s), p.address]), "none", rows.map(p => p.up ? "" : "bad"));
}
