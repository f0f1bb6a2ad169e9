// Alarms, the registry's change, and the parts that the server has in words (photon.status.parts).
import { $, el, table } from "./dom.js";
import { explain } from "./explain.js";
import { NONE, known, utc } from "./words.js";

let alarmsSaid = "";

export function drawAlarms(alarms) {
  const said = JSON.stringify(alarms);
  if (said === alarmsSaid) return;
  alarmsSaid = said;
  $("alarms").hidden = !alarms.length;
  $("alarms").querySelector("ul").replaceChildren(...alarms.map(a =>
    el("li", {}, el("b", {}, a.where), ": " + a.what, el("span", { class: "do" }, "→ " + a.todo))));
}

// A part is a table, or, where the page has a list for it, its only row below one another.
export function drawPart({ name, columns, rows, styles, none }) {
  const box = $(name + "-part");
  if (box) box.hidden = !rows.length;
  if ($(name).localName === "dl") {
    const said = (rows[0] ?? []).map((value, i) => [columns[i][0], value]).filter(([, value]) => value);
    $(name).replaceChildren(...said.flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, value)]));
    return;
  }
  const shown = name === "oldest" ? rows.map(([id, ...rest]) => [idButton(id), ...rest]) : rows;
  table(name, columns, shown, none, styles);
}

function idButton(id) {
  const button = el("button", { type: "button", class: "link", title: "explain this event" }, id);
  button.addEventListener("click", () => {
    explain(id);
    $("explain").scrollIntoView({ block: "start" });
  });
  return button;
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
}
