// What all of the page knows of the fleet, how it says it, and small helpers.
// One of the page's scripts: they load in the order of page.html and share their names; page.js starts them.
"use strict";
const API = "/api/v1";
const POLL = 2000;
const ROWS = 50;
const USES = ["busy", "idle", "occupied", "parked", "stalled", "unknown", "off"];
const MEANINGS = {
  busy: "a GPU works, or somebody's program does",
  idle: "nothing works, and nobody is there",
  occupied: "somebody's program is alive and does nothing",
  parked: "GPU memory is held, nothing computes, and nobody is there",
  stalled: "full use without work, most likely a deadlock",
  unknown: "its use is not known, so it is never stopped",
  off: "the machine does not run",
};
// What it says comes by `t` or `word`, which know the reader's language: SAID, which the server puts before this file, has
// it by the English, with {} for each part. Test: tests/unit/controller/web/test_language.py.
const word = (english) => SAID[english] ?? english;
const t = (pieces, ...parts) => {
  const said = SAID[pieces.join("{}")];
  return said == null ? String.raw({ raw: pieces }, ...parts) : said.replace(/\{(\d+)\}/g, (_, at) => parts[at]);
};
const undotted = (text) => text.replace(/[.。]$/, "");
const listed = (each, between = ", ") => each.join(word(between));
const HEALTHS = ["healthy", "degraded", "failing", "unknown"];
const URGENT = { stalled: 0, idle: 1, occupied: 2, parked: 3, unknown: 4, busy: 5, off: 6 };
const $ = (id) => document.getElementById(id);

let fleet = null; // the newest /fleet
let byId = new Map();
let shown = []; // nodes that the filters let through, in the table's order
let first = 0; // of them, the table's first
let tag = "";
let skew = 0; // the controller's clock less this one, ms
let money = {};
let moneyOf = "";
let session = null;
let fresh = true; // nothing was drawn yet
const wanted = { uses: new Set(), text: "", pool: "", next: "", sort: "next", down: false };

// --- words -------------------------------------------------------------------------------------------------------
const now = () => Date.now() + skew;
const use = (node) => node.activity ?? (node.state === "unknown" ? "unknown" : "off");
const SIGNS = { CNY: "¥", EUR: "€", GBP: "£", INR: "₹", KRW: "₩" };
const sign = () => fleet?.currency ? SIGNS[fleet.currency.code] ?? `${fleet.currency.code} ` : "$";
const inOurs = (value) => fleet?.currency ? Number(value) / Number(fleet.currency.usd) : Number(value);
const usd = (value) => value == null ? "–" : sign() + inOurs(value).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const about = (value) => value == null || Math.abs(inOurs(value)) < 1000 ? usd(value) : sign() + number(Math.round(inOurs(value)));
const ageOf = (node) => t`${node.price_as_of}, ${count(Math.max(0, Math.floor((now() - Date.parse(node.price_as_of)) / 86400000)), "day")} old`;
const priceDay = (node) => node.price_as_of ? t` (${ageOf(node)}: ${node.price_source})` : "";
const percent = (ratio) => ratio == null ? "–" : (100 * ratio).toFixed(ratio < 0.1 && ratio > 0 ? 1 : 0) + " %";
const number = (value) => value.toLocaleString("en-US");
const count = (many, name) => SAID[`{} ${name}`]?.replace("{0}", number(many)) ?? `${number(many)} ${name}${many === 1 ? "" : "s"}`;
const title = (node) => node.name === node.id ? node.id : node.name;

function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return t`${s} s`;
  if (s < 5400) return t`${Math.round(s / 60)} min`;
  const minutes = Math.min(59, Math.round((s % 3600) / 60));
  if (s < 172800) return minutes ? t`${Math.floor(s / 3600)} h ${minutes} min` : t`${Math.floor(s / 3600)} h`;
  return t`${Math.round(s / 86400)} d`;
}

const timeOf = (at) => at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });

function when(iso) {
  const at = new Date(iso), today = new Date(now()).toDateString() === at.toDateString();
  const time = timeOf(at);
  return today ? time : `${at.toLocaleDateString("en-CA").slice(5)} ${time}`;
}

// Who stopped it, when and why; of a node that runs, or that has more to come, the decision's reason.
function whyWords(node) {
  const stop = node.stopped;
  if (!stop || !stop.by || node.next) return node.why;
  return t`Stopped ${when(stop.at)} by ${stop.by}: ${stop.why ?? t`no reason is on record`}${approvedWords(stop)}.`;
}

const approvedWords = (each) => each.approved_by ? t`; ${each.approved_by} approved it` : "";

function nextWords(next) {
  if (!next) return ["–", ""];
  if (next.refused_by.includes("approval")) {
    const others = next.refused_by.filter((rule) => rule !== "approval");
    return [t`${word(next.verb)}, waits for approval`, others.length ? t`also held back: ${listed(others)}` : t`due ${when(next.at)}`];
  }
  if (next.refused_by.length) return [t`${word(next.verb)}, held back`, listed(next.refused_by)];
  const left = (Date.parse(next.at) - now()) / 1000;
  const main = left > 5 ? t`${word(next.verb)} in ${span(left)}` : t`${word(next.verb)} now`;
  if (next.verb === "notice" && next.removal_at) return [main, t`not before ${when(next.removal_at)}`];
  return [main, left > 5 ? t`not before ${when(next.at)}` : ""];
}

// --- small DOM ---------------------------------------------------------------------------------------------------
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function el(name, options = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key in made && key !== "list") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

const dot = (name) => el("span", { className: `dot ${name}`, ariaHidden: "true" });

function list(id, items, nothing) {
  const old = $(id).contains(document.activeElement) ? document.activeElement.dataset.key : null;
  $(id).replaceChildren(...(items.length ? items : [el("li", { className: "faint" }, nothing)]));
  if (old) [...$(id).querySelectorAll("[data-key]")].find((each) => each.dataset.key === old)?.focus();
}

function opener(id, name) {
  if (!byId.has(id)) return el("strong", {}, name ?? id);
  const made = el("button", { type: "button", className: "link", onclick: () => explain(id) }, name ?? title(byId.get(id)));
  made.dataset.key = id;
  return made;
}

function opensFilter(next, words) {
  const made = el("button", { type: "button", className: "link", onclick: () => {
    wanted.next = $("next").value = next;
    filtered();
    $("nodes").focus();
  } }, words);
  made.dataset.key = `next ${next}`;
  return made;
}
