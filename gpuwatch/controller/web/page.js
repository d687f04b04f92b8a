// The fleet's page: asks for /api/v1/fleet again and again (304 while nothing is new) and changes what has changed.
// All text goes in through textContent; nothing is loaded from elsewhere.
"use strict";
const API = "/api/v1";
const POLL = 2000;
const ROWS = 50;
const USES = ["busy", "idle", "occupied", "parked", "stalled", "unknown", "off"];
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
const use = (node) => node.activity ?? "off";
const usd = (value) => value == null ? "–" : "$" + Number(value).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const about = (value) => value == null || Math.abs(value) < 1000 ? usd(value) : "$" + Math.round(value).toLocaleString("en-US");
const percent = (ratio) => ratio == null ? "–" : (100 * ratio).toFixed(ratio < 0.1 && ratio > 0 ? 1 : 0) + " %";
const count = (number, word) => `${number.toLocaleString("en-US")} ${word}${number === 1 ? "" : "s"}`;
const title = (node) => node.name === node.id ? node.id : node.name;

function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`.replace(" 60 min", " 59 min").replace(" 0 min", "");
  return `${Math.round(s / 86400)} d`;
}

function when(iso) {
  const at = new Date(iso), today = new Date(now()).toDateString() === at.toDateString();
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  return today ? time : `${at.toLocaleDateString("en-CA").slice(5)} ${time}`;
}

function nextWords(next) {
  if (!next) return ["–", ""];
  if (next.refused_by.includes("approval")) {
    const others = next.refused_by.filter((rule) => rule !== "approval");
    return [`${next.verb}, waits for approval`, others.length ? `also held back: ${others.join(", ")}` : `due ${when(next.at)}`];
  }
  if (next.refused_by.length) return [`${next.verb}, held back`, next.refused_by.join(", ")];
  const left = (Date.parse(next.at) - now()) / 1000;
  const main = left > 5 ? `${next.verb} in ${span(left)}` : `${next.verb} now`;
  if (next.verb === "notice" && next.removal_at) return [main, `gone ${when(next.removal_at)} at the earliest`];
  return [main, left > 5 ? `at ${when(next.at)} at the earliest` : ""];
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

// --- asking ------------------------------------------------------------------------------------------------------
async function ask(path, options = {}) {
  const answer = await fetch(API + path, { cache: "no-store", credentials: "same-origin", ...options });
  const date = Date.parse(answer.headers.get("Date"));
  if (date && Math.abs(date - Date.now() - skew) > 1500) skew = date - Date.now();
  if (answer.status === 304) return null;
  const body = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  if (!answer.ok) throw new Error(body.error);
  if (answer.headers.get("ETag") && path === "/fleet") tag = answer.headers.get("ETag");
  return body;
}

async function act(method, path, body) {
  const headers = { "X-Gpuwatch": "act", ...(body ? { "Content-Type": "application/json" } : {}) };
  return ask(path, { method, headers, ...(body ? { body: JSON.stringify(body) } : {}) });
}

let lost = "";
async function poll() {
  try {
    const newest = await ask("/fleet", tag ? { headers: { "If-None-Match": tag } } : {});
    lost = "";
    if (newest) {
      const begin = performance.now();
      fleet = newest;
      byId = new Map(fleet.nodes.map((node) => [node.id, node]));
      draw();
      requestAnimationFrame(() => setTimeout(() => {
        performance.measure(fresh ? "gpuwatch-first" : "gpuwatch-update", { start: fresh ? 0 : begin, end: performance.now() });
        fresh = false;
      }));
      if ($("detail").open) explain($("detail").dataset.node, true);
      askMoney();
    }
  } catch (error) {
    lost = error instanceof TypeError ? "The controller does not answer; what you see is old." : `${error.message}.`;
  }
  banner();
}

async function askMoney() {
  const minute = fleet.at.slice(0, 16);
  if (minute === moneyOf) return;
  moneyOf = minute;
  const periods = await Promise.allSettled(["today", "month"].map((period) => ask(`/cost?period=${period}&by=pool`)));
  for (const [index, name] of ["day", "month"].entries()) money[name] = periods[index].value ?? null;
  drawMoney();
}

// --- what the filters let through --------------------------------------------------------------------------------
const rank = {
  name: (a, b) => title(a).localeCompare(title(b), "en", { numeric: true }),
  pool: (a, b) => a.pool.localeCompare(b.pool),
  use: (a, b) => URGENT[use(a)] - URGENT[use(b)] || (b.held_seconds ?? 0) - (a.held_seconds ?? 0),
  next: (a, b) => soon(a) - soon(b) || rank.use(a, b),
  usd: (a, b) => Number(a.usd_per_hour ?? -1) - Number(b.usd_per_hour ?? -1),
};
const waits = (node) => node.approval != null && node.approval.who == null;
const soon = (node) => !node.next ? Infinity : node.next.refused_by.length ? 8e15 : Date.parse(node.next.removal_at ?? node.next.at);

function lets(node) {
  if (wanted.uses.size && !wanted.uses.has(use(node))) return false;
  if (wanted.pool && node.pool !== wanted.pool) return false;
  const next = node.next;
  if (wanted.next === "coming" && !next) return false;
  if (wanted.next === "removal" && !(next && next.removal_at && !next.refused_by.length)) return false;
  if (wanted.next === "approval" && !waits(node)) return false;
  if (wanted.next === "refused" && !(next && next.refused_by.length)) return false;
  if (!wanted.text) return true;
  const hay = `${node.id} ${node.name} ${node.owner ?? ""} ${node.instance_type} ${node.zone} ${node.why}`.toLowerCase();
  return wanted.text.split(/\s+/).every((word) => hay.includes(word));
}

function sift() {
  const order = (a, b) => {
    const by = rank[wanted.sort](a, b);
    return (Number.isNaN(by) ? rank.use(a, b) : wanted.down ? -by : by) || (a.id < b.id ? -1 : 1);
  };
  shown = fleet.nodes.filter(lets).sort(order);
  if (first >= shown.length) first = Math.max(0, Math.floor((shown.length - 1) / ROWS) * ROWS);
}

function filtered() {
  first = 0;
  const query = new URLSearchParams();
  if (wanted.uses.size) query.set("use", [...wanted.uses].join(","));
  for (const key of ["text", "pool", "next"]) if (wanted[key]) query.set(key, wanted[key]);
  history.replaceState(null, "", query.size ? `#${query}` : location.pathname);
  if (!fleet) return;
  sift();
  drawUses();
  drawRows();
  drawMap();
}

// --- drawing -----------------------------------------------------------------------------------------------------
function draw() {
  sift();
  drawHead();
  drawUses();
  drawMoney();
  drawMap();
  drawRows();
  drawAside();
}

function drawHead() {
  const totals = fleet.totals;
  put($("fleet"), fleet.fleet);
  $("mode").hidden = false;
  $("mode").className = `badge ${fleet.mode}`;
  put($("mode"), fleet.mode);
  $("mode").title = fleet.mode === "observe" ? "It decides and tells, and touches nothing." : "It acts.";
  put($("gpus"), totals.gpus.toLocaleString("en-US"));
  put($("machines"), `on ${count(totals.nodes, "node")}, ${totals.running.toLocaleString("en-US")} running`);
  put($("version"), `gpuwatch ${fleet.version}`);
  document.title = `${totals.gpus_by_activity.busy} of ${totals.gpus} GPUs busy · gpuwatch ${fleet.fleet}`;
  options($("pool"), fleet.pools, wanted.pool);
  options($("pause-pool"), fleet.pools, $("pause-pool").value);
  age();
}

function options(select, pools, value) {
  const names = ["", ...pools.map((pool) => pool.name)];
  if ([...select.options].map((each) => each.value).join("\n") === names.join("\n")) return;
  select.replaceChildren(...names.map((name) => el("option", { value: name }, name || "all")));
  select.value = value;
}

function age() {
  if (!fleet) return;
  const old = (now() - Date.parse(fleet.at)) / 1000;
  put($("age"), `round of ${when(fleet.at)}, ${span(old)} ago`);
  $("age").title = fleet.at;
}

function banner() {
  const lines = [];
  if (lost) lines.push(lost);
  if (fleet) {
    const old = (now() - Date.parse(fleet.at)) / 1000;
    if (fleet.trouble) lines.push(`The newest round saw nothing: ${fleet.trouble} Below is the one before.`);
    else if (!lost && old > 3 * fleet.interval_seconds + 30) lines.push(`There was no round for ${span(old)}; one is due each ${span(fleet.interval_seconds)}.`);
    for (const pause of fleet.pauses) lines.push(`Paused: ${pauseWords(pause)}.`);
  }
  $("banner").hidden = !lines.length;
  put($("banner"), lines.join(" "));
}

function drawUses() {
  const by = fleet.totals.gpus_by_activity;
  if (!$("uses").children.length) {
    for (const name of USES) {
      const button = el("button", { type: "button", onclick: () => toggle(name) }, dot(name), el("span"));
      button.dataset.use = name;
      $("uses").append(button);
      $("bar").append(el("span", { className: name }));
    }
  }
  USES.forEach((name, index) => {
    const button = $("uses").children[index];
    put(button.lastChild, `${name} ${by[name].toLocaleString("en-US")}`);
    button.setAttribute("aria-pressed", String(wanted.uses.has(name)));
    $("bar").children[index].style.width = `${100 * by[name] / Math.max(1, fleet.totals.gpus)}%`;
  });
}

function toggle(name) {
  if (!wanted.uses.delete(name)) wanted.uses.add(name);
  filtered();
}

function drawMoney() {
  const totals = fleet.totals;
  put($("now-usd"), `${about(totals.usd_per_hour)}/h`);
  const lacks = totals.unpriced ? `; ${count(totals.unpriced, "node")} without a price` : "";
  put($("now-more"), `${about(totals.usd_per_hour_not_used)}/h not used${lacks}`);
  for (const name of ["day", "month"]) {
    const cost = money[name];
    put($(`${name}-usd`), cost ? about(cost.total.usd ?? (cost.total.machine_hours ? null : 0)) : "–");
    put($(`${name}-more`), !cost ? "not known" : cost.metered_since === null ? "nothing is metered yet" : `${about(cost.total.usd_wasted)} wasted, ${percent(cost.total.waste_ratio)} of GPU-hours`);
  }
}

function drawRows() {
  const page = shown.slice(first, first + ROWS), body = $("rows");
  while (body.children.length > page.length) body.lastChild.remove();
  while (body.children.length < page.length) body.append(emptyRow());
  page.forEach((node, index) => fill(body.children[index], node));
  put($("count"), shown.length === fleet.nodes.length ? count(shown.length, "node") : `${shown.length.toLocaleString("en-US")} of ${count(fleet.nodes.length, "node")}`);
  put($("where"), shown.length ? `${first + 1} – ${first + page.length} of ${shown.length.toLocaleString("en-US")}` : "none");
  $("back").disabled = first === 0;
  $("forth").disabled = first + ROWS >= shown.length;
}

function emptyRow() {
  const name = el("button", { type: "button", className: "name" });
  const row = el("tr", {},
    el("td", {}, name, el("small")),
    el("td", { className: "mid" }, el("span"), el("small")),
    el("td", {}, el("span", {}, dot("off"), el("span")), el("small")),
    el("td", {}, el("span"), el("small")),
    el("td", { className: "why far" }, el("div")),
    el("td", { className: "mid num" }));
  row.onclick = () => { if (!String(getSelection())) explain(row.dataset.id); };
  name.onclick = (event) => { event.stopPropagation(); explain(row.dataset.id); };
  return row;
}

function fill(row, node) {
  if (row.dataset.id !== node.id) row.dataset.id = node.id;
  const [name, pool, doing, next, why, price] = row.children;
  put(name.firstChild, title(node));
  put(name.lastChild, `${node.id === node.name ? "" : `${node.id} · `}${node.gpus.length ? `${node.gpus.length} GPUs · ` : ""}${node.instance_type}`);
  put(pool.firstChild, node.pool);
  put(pool.lastChild, node.enrolled ? node.owner ?? "" : "not enrolled");
  const dotted = doing.firstChild;
  if (dotted.firstChild.className !== `dot ${use(node)}`) dotted.firstChild.className = `dot ${use(node)}`;
  put(dotted.lastChild, node.activity ?? node.state);
  put(doing.lastChild, node.held_seconds == null ? node.doubt ?? "" : `for ${span(node.held_seconds + (now() - Date.parse(fleet.at)) / 1000)}`);
  const [main, more] = nextWords(node.next);
  put(next.firstChild, main);
  put(next.lastChild, more);
  put(why.firstChild, node.why);
  if (why.title !== node.why) why.title = node.why;
  put(price, node.usd_per_hour == null ? "–" : Number(node.usd_per_hour).toFixed(2));
}

function drawAside() {
  const going = fleet.nodes.filter((node) => node.next && !node.next.refused_by.length).sort(rank.next);
  const held = fleet.nodes.filter((node) => node.next && node.next.refused_by.length && !waits(node)).length;
  const asking = fleet.nodes.filter(waits).length;
  const items = going.slice(0, 8).map((node) => {
    const [main, more] = nextWords(node.next);
    return el("li", {}, opener(node.id), ` ${main} `, el("small", {}, more));
  });
  if (going.length > 8) items.push(el("li", { className: "faint" }, `and ${going.length - 8} more`));
  if (asking) items.unshift(el("li", {}, opensFilter("approval", `${count(asking, "node")} ${asking === 1 ? "waits" : "wait"} for approval`)));
  if (held) items.push(el("li", { className: "faint" }, `${count(held, "step")} held back by the guard`));
  list("coming", items, "Nothing; all stays as it is.");

  $("budget-card").hidden = !fleet.budgets.length;
  list("budgets", fleet.budgets.map(budget), "");

  list("pools", fleet.pools.map((pool) => el("li", {},
    el("strong", {}, pool.name), ` ${pool.running} of ${count(pool.nodes, "node")} running, ${count(pool.gpus, "GPU")}, ${about(pool.usd_per_hour)}/h`,
    pool.target == null ? null : `, target ${pool.target}`, el("br"), el("small", {}, [pool.rule, ...pool.clamps].join(". ")))), "There are none.");

  list("actions", fleet.actions.slice(0, 10).map((action) => el("li", {},
    `${when(action.at)} ${action.verb} `, opener(action.target), el("small", {}, ` ${action.status}${action.open ? ", under way" : ""}${action.detail ? `: ${action.detail}` : ""}`))), "Nothing.");

  $("advice-card").hidden = !fleet.advice.length;
  const hints = fleet.advice.slice(0, 8).map((hint) => el("li", {}, opener(hint.target), " ", el("small", {}, hint.sentence)));
  if (fleet.advice.length > 8) hints.push(el("li", { className: "faint" }, `and ${fleet.advice.length - 8} more`));
  list("advice", hints, "");
  drawPauses();
}

function budget(each) {
  const ratio = each.spent_usd == null ? 0 : Number(each.spent_usd) / Number(each.usd_per_month);
  const bar = el("progress", { max: 1, value: Math.min(1, ratio), className: ratio > 1 ? "over" : "", ariaLabel: `spent of budget ${each.name}` });
  const ends = each.forecast_usd == null ? "" : `, ${each.month} ends at ${usd(each.forecast_usd)}`;
  const within = each.lower_usd == null ? "" : ` (80 %: ${usd(each.lower_usd)} to ${usd(each.upper_usd)})`;
  const risk = each.probability_over == null ? "" : `; over with ${percent(each.probability_over)}`;
  return el("li", {}, el("strong", {}, each.name), ` ${usd(each.spent_usd)} of ${usd(each.usd_per_month)}`, bar,
    el("small", {}, `${each.scope}${ends}${within}${risk}${each.blocked ? `. No machine is added: ${each.blocked}` : ""}${each.doubt ? `. ${each.doubt}` : ""}`));
}

// --- pauses ------------------------------------------------------------------------------------------------------
const pauseWords = (pause) => `${pause.pool == null ? "all pools" : `pool ${pause.pool}`} ${pause.until ? `until ${when(pause.until)}` : "until somebody resumes it"}, by ${pause.who}${pause.reason ? `: ${pause.reason}` : ""}`;

function drawPauses() {
  const may = session?.may_act;
  list("pauses", fleet.pauses.map((pause) => {
    const button = may ? el("button", { type: "button", onclick: () => ordered("DELETE", pause.pool == null ? "/pauses" : `/pauses/${encodeURIComponent(pause.pool)}`) }, pause.pool == null ? "Resume all" : "Resume") : null;
    if (button) button.dataset.key = `resume ${pause.pool}`;
    return el("li", {}, `${pauseWords(pause)} `, button);
  }), "None.");
  $("pause").hidden = !may;
  put($("may-not"), session && !may ? `You may read only: ${session.why_not}.` : "");
}

async function ordered(method, path, body) {
  try {
    await act(method, path, body);
    lost = "";
    fleet.pauses = (await ask("/pauses")).pauses;
  } catch (error) {
    lost = `Not done: ${error.message}.`;
  }
  drawPauses();
  banner();
}

// --- the map -----------------------------------------------------------------------------------------------------
const map = $("map"), brush = map.getContext("2d");
let blocks = []; // {node, x, y, w, h}
let picked = null;

function colours() {
  // Resolved by the browser from the classes of the style sheet, for whichever theme is on.
  const probe = el("span"), found = {};
  document.body.append(probe);
  for (const [name, value] of [...["busy", "idle", "occupied", "parked", "stalled", "unknown", "off", "healthy", "low", "high", "ink", "faint"].map((each) => [each, each])]) {
    probe.style.color = `var(--${value})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return { ...found, degraded: found.idle, failing: found.stalled };
}

const mix = (low, high, ratio) => {
  const [a, b] = [low, high].map((each) => each.match(/[\d.]+/g).map(Number));
  return `rgb(${[0, 1, 2].map((i) => Math.round(a[i] + (b[i] - a[i]) * Math.min(1, Math.max(0, ratio)))).join(" ")})`;
};

function layout(width) {
  const pools = new Map(fleet.pools.map((pool) => [pool.name, []]));
  for (const node of fleet.nodes) (pools.get(node.pool) ?? pools.set(node.pool, []).get(node.pool)).push(node);
  for (let cell = 16; ; cell -= 1) {
    const made = [], labels = [];
    let y = 0;
    for (const [pool, nodes] of pools) {
      if (!nodes.length) continue;
      labels.push({ pool, y: y + 11, nodes: nodes.length });
      y += 18;
      let x = 0, tall = 0;
      for (const node of nodes) {
        const many = Math.max(1, node.gpus.length), across = many <= 4 ? many : many <= 8 ? 4 : 8;
        const w = across * cell, h = Math.ceil(many / across) * cell;
        if (x + w > width) { x = 0; y += tall + 3; tall = 0; }
        made.push({ node, x, y, w, h, across });
        x += w + 4;
        tall = Math.max(tall, h);
      }
      y += tall + 10;
    }
    if (y <= 460 || cell <= 6) return { made, labels, height: Math.max(40, y), cell };
  }
}

function drawMap() {
  const width = map.parentElement.clientWidth - 24;
  if (!fleet || width <= 0) return;
  const { made, labels, height, cell } = layout(width), scale = devicePixelRatio || 1;
  blocks = made;
  const wide = Math.round(width * scale), high = Math.round(height * scale);
  if (map.width !== wide || map.height !== high) {
    map.width = wide;
    map.height = high;
    map.style.height = `${height}px`;
  }
  brush.setTransform(scale, 0, 0, scale, 0, 0);
  brush.clearRect(0, 0, width, height);
  const paint = colours(), by = $("colour").value, gap = cell > 8 ? 2 : 1, hatch = hatched(paint, scale);
  const all = shown.length === fleet.nodes.length, some = new Set(all ? [] : shown.map((node) => node.id));
  brush.font = "11px system-ui, sans-serif";
  brush.fillStyle = paint.faint;
  for (const label of labels) brush.fillText(`${label.pool} · ${count(label.nodes, "node")}`, 0, label.y);
  for (const block of made) {
    brush.globalAlpha = all || some.has(block.node.id) ? 1 : 0.15;
    const cells = block.node.gpus;
    if (!cells.length) {
      brush.strokeStyle = paint.unknown;
      brush.strokeRect(block.x + 0.5, block.y + 0.5, cell - gap - 1, cell - gap - 1);
      continue;
    }
    for (let index = 0; index < cells.length; index += 1) {
      const gpu = cells[index], value = gpu[by];
      if (value == null || value === "unknown") brush.fillStyle = hatch;
      else brush.fillStyle = typeof value === "number" ? mix(paint.low, paint.high, value) : paint[value];
      const x = block.x + (index % block.across) * cell, y = block.y + Math.floor(index / block.across) * cell;
      brush.fillRect(x, y, cell - gap, cell - gap);
      if (gpu.health === "failing" && by !== "health") {
        brush.fillStyle = paint.ink;
        brush.fillRect(x + (cell - gap) / 2 - 1.5, y + (cell - gap) / 2 - 1.5, 3, 3);
      }
    }
  }
  brush.globalAlpha = 1;
  const ring = made.find((block) => block.node.id === picked);
  if (ring) {
    brush.strokeStyle = paint.ink;
    brush.lineWidth = 2;
    brush.strokeRect(ring.x - 2, ring.y - 2, ring.w + 4 - gap, ring.h + 4 - gap);
    brush.lineWidth = 1;
  }
  legend(by);
}

function hatched(paint, scale) {
  const tile = el("canvas", { width: 4, height: 4 }), pen = tile.getContext("2d");
  pen.fillStyle = paint.off;
  pen.fillRect(0, 0, 4, 4);
  pen.fillStyle = paint.unknown;
  for (const [x, y] of [[0, 3], [1, 2], [2, 1], [3, 0], [0, 0], [3, 3]]) if ((x + y) % 4 === 3) pen.fillRect(x, y, 1.5, 1.5);
  const made = brush.createPattern(tile, "repeat");
  made.setTransform(new DOMMatrix().scale(1 / Math.min(scale, 2)));
  return made;
}

function legend(by) {
  const names = by === "activity" ? USES : by === "health" ? HEALTHS : ["0 %", "ramp", "100 %", "unknown"];
  if ($("legend").dataset.by === by) return;
  $("legend").dataset.by = by;
  $("legend").replaceChildren(...names.map((name) => name === "ramp" ? el("span", { className: "ramp" }) : name.endsWith("%") ? el("span", {}, name) : el("span", {}, dot(name), name)));
}

function pick(block) {
  const id = block?.node.id ?? null;
  if (id === picked) return;
  picked = id;
  put($("caption"), block ? caption(block.node) : "A block is a node, a square one of its GPUs.");
  drawMap();
}

function caption(node) {
  const held = node.held_seconds == null ? node.doubt ?? "" : `for ${span(node.held_seconds)}`;
  const [main] = nextWords(node.next);
  return `${title(node)} · ${node.pool} · ${count(node.gpus.length, "GPU")} · ${node.activity ?? node.state} ${held} · next: ${main === "–" ? "nothing" : main}`;
}

const under = (event) => {
  const box = map.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  return blocks.find((block) => x >= block.x - 2 && x <= block.x + block.w + 2 && y >= block.y - 2 && y <= block.y + block.h + 2);
};
map.onmousemove = (event) => pick(under(event));
map.onmouseleave = () => { if (document.activeElement !== map) pick(null); };
map.onclick = (event) => { const block = under(event); if (block) explain(block.node.id); };
map.onkeydown = (event) => {
  const at = blocks.findIndex((block) => block.node.id === picked), here = blocks[at];
  if (event.key === "Enter" && here) explain(picked);
  if (!event.key.startsWith("Arrow") || !blocks.length) return;
  event.preventDefault();
  if (!here) return pick(blocks[0]);
  const row = (sign) => blocks.filter((block) => sign * (block.y - here.y) > 0).sort((a, b) => sign * (a.y - b.y) || Math.abs(a.x - here.x) - Math.abs(b.x - here.x))[0];
  pick({ ArrowLeft: blocks[at - 1], ArrowRight: blocks[at + 1], ArrowUp: row(-1), ArrowDown: row(1) }[event.key] ?? here);
};

// --- one node explained ------------------------------------------------------------------------------------------
async function explain(id, again = false) {
  const dialog = $("detail");
  dialog.dataset.node = id;
  if (!again) {
    put($("detail-title"), title(byId.get(id) ?? { id, name: id }));
    $("detail-body").replaceChildren(el("p", { className: "faint" }, "asking …"));
    if (!dialog.open) dialog.showModal();
  }
  try {
    const page = await ask(`/nodes/${encodeURIComponent(id)}`);
    const filling = again && document.activeElement?.closest("#snooze, #approve");
    if (dialog.dataset.node === id && !filling) $("detail-body").replaceChildren(...explained(page));
  } catch (error) {
    if (dialog.dataset.node === id) $("detail-body").replaceChildren(el("p", {}, error.message));
  }
}

function explained(page) {
  const { row, activity, step, if_stopped_now: review } = page, running = row.activity != null;
  const [main, more] = nextWords(row.next);
  const facts = {
    "Use": running ? `${row.activity}${row.held_seconds == null ? `: ${row.doubt ?? ""}` : ` for ${span(row.held_seconds)}`}` : row.state,
    "Last reset": page.last_reset,
    "Work of": page.owners.join("; ") || null,
    "Next": main === "–" ? "nothing" : `${main}${more ? ` (${more})` : ""}`,
    "Why": row.why,
    "What would change it": step.change,
    "Node": `${row.id}, ${row.instance_type} (${row.capacity_type}) in ${row.zone}, pool ${row.pool}${row.enrolled ? "" : ", not enrolled"}`,
    "Owner": row.owner,
    "Price": row.usd_per_hour == null ? "not known" : `${usd(row.usd_per_hour)}/h`,
    "Agent": page.agent_version == null ? null : `${page.agent_version}, its verdict was ${span(page.verdict_age_seconds)} old`,
    "Its agent cannot see": page.blind.join(" ") || null,
    "Its pool": page.pool_reasons.join("; ") || null,
  };
  const parts = [el("dl", { className: "facts" }, ...Object.entries(facts).filter(([, value]) => value).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))];
  if (activity.evidence.length) {
    parts.push(el("h3", {}, "Evidence"), table(["Signal", "Says", "Seen", "Limit", "Source"], activity.evidence.map((each) =>
      [each.name, each.says, `${number(each.observed)} ${each.unit}`, `${number(each.limit)} ${each.unit}`, each.note ? `${each.source}; ${each.note}` : each.source])));
  }
  parts.push(...lastBusy(page));
  if (page.gpus.length) {
    parts.push(el("h3", {}, "GPUs"), table(["GPU", "Use", "Utilization", "Memory", "Health"], page.gpus.map((gpu) =>
      [gpu.index ?? gpu.uuid, gpu.activity.state + (gpu.activity.doubt ? `: ${gpu.activity.doubt}` : ""), percent(gpu.use?.utilization_ratio), percent(gpu.use?.memory_used_ratio),
        gpu.health ? [gpu.health.state, ...gpu.health.findings.map((each) => `${each.sentence} Remedy: ${each.remedy}.`)].join(". ") : "–"])));
  }
  const answers = [...review.answers].sort((a, b) => b.refused - a.refused);
  const word = (each) => el("span", { className: each.refused ? "refuses" : "faint" }, each.refused ? "refuses" : "agrees");
  parts.push(el("h3", {}, `The guard, were it to ${review.step.verb} now`), table(["Rule", "Answer", "Why"], answers.map((each) => [each.rule, word(each), each.refused ? `${each.sentence} ${each.remedy}` : each.sentence])));
  parts.push(el("h3", {}, "Ledger"), page.history.length ? table(["At", "What", "Why", "What came of it"], page.history.map((entry) =>
    [when(entry.intent.at), entry.intent.verb, entry.intent.reason.sentence, entry.outcomes.map((each) => `${each.status}: ${each.detail}`).join("; ") || "open"])) : el("p", { className: "faint" }, "Nothing was ever done to it."));
  if (page.approval) parts.push(el("h3", {}, "To approve it"), approving(page));
  parts.push(el("h3", {}, "To keep it"), keeping(page));
  return parts;
}

// What set the idle time to zero last; an older agent, and Prometheus, do not say.
function lastBusy(page) {
  if (!page.last_busy.length && !page.agent_started_at) return [];
  const since = page.agent_started_at ? ` since the agent started at ${when(page.agent_started_at)}` : "";
  if (!page.last_busy.length) return [el("h3", {}, "Busy last"), el("p", { className: "faint" }, `Nothing${since}; what was before is not known.`)];
  const rows = page.last_busy.map(({ evidence, at, ago_seconds: ago, amount, who }) =>
    [ago === 0 ? "now" : `${when(at)}, ${span(ago)} ago`, `${evidence.name}: ${evidence.says}`, amount ?? "–", who ?? "–", evidence.setting ?? "–"]);
  return [el("h3", {}, `Busy last${since}`), table(["When", "Signal", "Seen", "Who", "Setting to change"], rows)];
}

const reasoned = (reason) => reason ? `: ${reason}` : "";

function approving(page) {
  const { row, approval } = page, next = row.next, path = `/nodes/${encodeURIComponent(row.id)}/approve`;
  if (approval.who) return el("p", {}, `Approved ${when(approval.at)} by ${approval.who}${reasoned(approval.reason)}. It goes if it still has no use then.`);
  if (!session?.may_act) return el("p", {}, "It goes only once an operator says yes, here or by ", el("code", {}, `gpuwatch approve ${row.id}`), ".");
  const box = el("div", { id: "approve" });
  const why = el("input", { id: "approve-why", maxLength: 500, autocomplete: "off" });
  const first = el("form", {}, el("label", { className: "grow" }, "Reason ", why), el("button", { type: "submit" }, "Approve …"));
  const said = el("p", { id: "approve-status", role: "status" });
  const ask = () => { box.replaceChildren(first, said); why.focus(); };
  const yes = async () => {
    try {
      await act("POST", path, { reason: why.value, notice: approval.notice });
      $("detail").querySelector("[data-close]").focus();
      explain(row.id, true);
    } catch (error) {
      put(said, `Not done: ${error.message}.`);
      ask();
    }
  };
  first.onsubmit = (event) => {
    event.preventDefault();
    put(said, "");
    const left = next ? (Date.parse(next.removal_at ?? next.at) - now()) / 1000 : 0;
    const time = left > 5 ? `at ${when(next.removal_at ?? next.at)} at the earliest` : "with the next round";
    const sure = el("p", { id: "approve-sure" }, el("strong", {}, `Let gpuwatch ${next?.verb ?? "remove"} ${title(row)}?`), ` ${row.id} of pool ${row.pool} goes ${time}. ${page.step.reason.sentence}${page.snooze ? ` It is kept until ${when(page.snooze.until)}.` : ""}${why.value ? ` Your reason: ${why.value}` : ""}`);
    const button = el("button", { type: "button", id: "approve-yes", onclick: yes }, `Yes, ${next?.verb ?? "remove"} it`);
    box.replaceChildren(el("div", { role: "group", "aria-labelledby": "approve-sure" }, sure, el("div", { className: "row" }, button, el("button", { type: "button", onclick: ask }, "No, back"))));
    button.focus();
  };
  box.append(first, said);
  return box;
}

function keeping(page) {
  const node = page.row.id, path = `/nodes/${encodeURIComponent(node)}/snooze`;
  const order = async (method, body) => {
    try {
      await act(method, path, body);
      $("detail").querySelector("[data-close]").focus();
      explain(node, true);
    } catch (error) {
      put($("snooze-status"), `Not done: ${error.message}.`);
    }
  };
  const kept = page.snooze ? `It is kept until ${when(page.snooze.until)} by ${page.snooze.who}${reasoned(page.snooze.reason)}. ` : "";
  if (!session?.may_act) return el("p", { id: "snooze-status" }, kept, "On the node ", el("code", {}, "gpuwatch snooze 4h"), ", or in the cloud the tag ", el("code", {}, "gpuwatch:snooze-until"), " with a time.");
  const times = [[3600, "1 hour"], [14400, "4 hours"], [86400, "1 day"], [259200, "3 days"], [604800, "7 days"]].filter(([seconds]) => seconds <= page.max_snooze_seconds);
  const howLong = el("select", { id: "snooze-for" }, ...times.map(([seconds, name]) => el("option", { value: seconds }, name)));
  const why = el("input", { id: "snooze-why", maxLength: 500, autocomplete: "off" });
  const form = el("form", { id: "snooze" }, el("label", {}, "For ", howLong), el("label", { className: "grow" }, "Reason ", why), el("button", { type: "submit" }, "Keep"));
  form.onsubmit = (event) => { event.preventDefault(); order("POST", { seconds: Number(howLong.value), reason: why.value }); };
  const back = page.snooze ? el("button", { type: "button", id: "let-go", onclick: () => order("DELETE") }, "Let it go") : null;
  return el("div", {}, el("p", { id: "snooze-status" }, kept, kept ? "It holds from the next round on. " : "", back), times.length ? form : null);
}

const number = (value) => value == null ? "–" : String(Number(value.toPrecision(4)));

function table(heads, rows) {
  const made = el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, cell instanceof Node ? cell : String(cell)))))));
  return el("div", { className: "wide-table", tabIndex: 0, role: "region", ariaLabel: heads.join(", ") }, made);
}

// --- hands -------------------------------------------------------------------------------------------------------
function theme(turn) {
  const order = ["auto", "light", "dark"];
  let name = order[0];
  try { name = localStorage.getItem("gpuwatch-theme") ?? name; } catch { /* a browser that keeps nothing */ }
  if (turn) name = order[(order.indexOf(name) + 1) % 3];
  try { localStorage.setItem("gpuwatch-theme", name); } catch { /* likewise */ }
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  put($("theme"), `Theme: ${name}`);
  drawMap();
}

function move(by) {
  const names = [...$("rows").querySelectorAll(".name")], at = names.indexOf(document.activeElement);
  names[Math.min(names.length - 1, Math.max(0, at < 0 ? 0 : at + by))]?.focus();
}

function cleared() {
  wanted.uses.clear();
  Object.assign(wanted, { text: "", pool: "", next: "" });
  $("search").value = $("pool").value = $("next").value = "";
  filtered();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("detail").open || $("help").open) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape") { cleared(); if (typing) event.target.blur(); return; }
  if (typing) return;
  const does = { "/": () => $("search").focus(), j: () => move(1), k: () => move(-1), m: () => map.focus(), t: () => theme(true), "?": () => $("help").showModal() }[event.key];
  if (does) { event.preventDefault(); does(); }
});

$("search").oninput = () => { wanted.text = $("search").value.trim().toLowerCase(); filtered(); };
$("pool").onchange = () => { wanted.pool = $("pool").value; filtered(); };
$("next").onchange = () => { wanted.next = $("next").value; filtered(); };
$("colour").onchange = drawMap;
$("theme").onclick = () => theme(true);
$("keys").onclick = () => $("help").showModal();
$("back").onclick = () => { first = Math.max(0, first - ROWS); drawRows(); };
$("forth").onclick = () => { first += ROWS; drawRows(); $("nodes").scrollIntoView({ block: "start" }); };
$("pause").onsubmit = (event) => {
  event.preventDefault();
  const seconds = $("pause-for").value;
  ordered("POST", "/pauses", { pool: $("pause-pool").value || null, seconds: seconds ? Number(seconds) : null, reason: $("pause-why").value });
  $("pause-why").value = "";
};
for (const head of document.querySelectorAll("th[data-sort]")) {
  head.firstChild.onclick = () => {
    wanted.down = wanted.sort === head.dataset.sort ? !wanted.down : false;
    wanted.sort = head.dataset.sort;
    for (const each of document.querySelectorAll("th[data-sort]")) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", wanted.down ? "descending" : "ascending");
    if (fleet) { first = 0; sift(); drawRows(); }
  };
}
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.querySelector("[data-close]").onclick = () => dialog.close();
  dialog.onclick = (event) => { if (event.target === dialog) dialog.close(); };
}
matchMedia("(prefers-color-scheme: dark)").onchange = drawMap;
let resized = 0;
addEventListener("resize", () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(drawMap); });

const query = new URLSearchParams(location.hash.slice(1));
wanted.uses = new Set((query.get("use") ?? "").split(",").filter((name) => USES.includes(name)));
for (const key of ["text", "pool", "next"]) wanted[key] = query.get(key) ?? "";
$("search").value = wanted.text;
$("next").value = wanted.next;

theme(false);
ask("/session").then((answer) => { session = answer; if (fleet) drawPauses(); }, () => {});
let ticks = 0;
(async function live() {
  if (!document.hidden || fresh) await poll();
  setTimeout(live, POLL);
})();
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
setInterval(() => {
  age();
  ticks += 1;
  if (fleet && ticks % 15 === 0 && !document.hidden) { drawRows(); banner(); }
}, 1000);
