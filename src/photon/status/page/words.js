// Numbers in words. Everything that is not known is a dash.
export const NONE = "–";
export const known = v => v !== null && v !== undefined;
export const count = v => known(v) ? Math.round(v).toLocaleString("en") : NONE;
export const rate = v => known(v) ? (v > 0 && v < 10 ? v.toFixed(1) : count(v)) + "/s" : NONE;
export const share = v => known(v) ? (100 * v).toFixed(v > 0.999 && v < 1 ? 4 : 1) + " %" : NONE;
export const many = (n, one, more) => count(n) + " " + (n === 1 ? one : more ?? one + "s");
export const utc = s => known(s) && Math.abs(s) < 8e12 ? new Date(s * 1000).toISOString().replace("T", " ").slice(0, 16) : NONE;

export function seconds(v) {
  if (!known(v)) return NONE;
  if (v === 0) return "0 s";
  if (v < 1) return Math.max(1, Math.round(v * 1000)) + " ms";
  if (v < 120) return v.toFixed(1) + " s";
  if (v < 7200) return Math.round(v / 60) + " min";
  return v < 172800 ? Math.round(v / 3600) + " h" : count(v / 86400) + " days";
}

export function bytes(v) {
  if (!known(v)) return NONE;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (v < 1024) return (unit === "B" ? Math.round(v) : v.toFixed(1)) + " " + unit;
    v /= 1024;
  }
  return v.toFixed(1) + " TiB";
}

// A number that fits where there is little room: 12.3k.
export function short(v) {
  if (!known(v)) return NONE;
  for (const unit of ["", "k", "M", "G"]) {
    if (v < 9999.5) return (unit && v < 99.95 ? v.toFixed(1) : Math.round(v).toLocaleString("en")) + unit;
    v /= 1000;
  }
  return v.toFixed(0) + "T";
}
