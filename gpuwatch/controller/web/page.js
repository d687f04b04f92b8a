// The fleet's page: asks for /api/v1/fleet again and again (304 while nothing is new) and changes what has changed.
// All text goes in through textContent; nothing is loaded from elsewhere.
"use strict";
// --- asking ------------------------------------------------------------------------------------------------------
async function ask(path, options = {}) {
  const answer = await fetch(API + path, { cache: "no-store", credentials: "same-origin", ...options });
  const date = Date.parse(answer.headers.get("Date"));
  if (date && Math.abs(date - Date.now() - skew) > 1500) skew = date - Date.now();
  if (answer.status === 304) return null;
  const body = await answer.json().catch(() => ({ error: t`status ${answer.status}` }));
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
      askBlocked();
    }
  } catch (error) {
    lost = error instanceof TypeError ? t`The controller does not answer; what you see is old.` : t`${undotted(error.message)}.`;
  }
  banner();
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
  const hay = `${node.id} ${node.name} ${node.owner ?? ""} ${node.instance_type} ${node.zone} ${node.cloud ?? ""} ${node.why}`.toLowerCase();
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
  put($("mode"), word(fleet.mode));
  $("mode").title = fleet.mode === "observe" ? t`It decides and tells, and touches nothing.` : t`It acts.`;
  put($("gpus"), number(totals.gpus));
  put($("machines"), t`on ${count(totals.nodes, "node")}, ${number(totals.running)} running`);
  put($("version"), `gpuwatch ${fleet.version}`);
  put($("price-head"), t`${sign().trim()}/h`);
  put($("rate"), fleet.currency ? ` · 1 ${fleet.currency.code} = US$ ${Number(fleet.currency.usd)}${fleet.currency.as_of ? `, ${fleet.currency.as_of}` : ""}` : "");
  document.title = t`${totals.gpus_by_activity.busy} of ${totals.gpus} GPUs busy · gpuwatch ${fleet.fleet}`;
  options($("pool"), fleet.pools, wanted.pool);
  options($("pause-pool"), fleet.pools, $("pause-pool").value);
  age();
}

function options(select, pools, value) {
  const names = ["", ...pools.map((pool) => pool.name)];
  if ([...select.options].map((each) => each.value).join("\n") === names.join("\n")) return;
  select.replaceChildren(...names.map((name) => el("option", { value: name }, name || t`all`)));
  select.value = value;
}

function age() {
  if (!fleet) return;
  const old = (now() - Date.parse(fleet.at)) / 1000;
  put($("age"), t`round of ${when(fleet.at)}, ${span(old)} ago`);
  $("age").title = fleet.at;
}

function banner() {
  const lines = [];
  if (lost) lines.push(lost);
  if (fleet) {
    const old = (now() - Date.parse(fleet.at)) / 1000;
    for (const each of fleet.silent ?? []) {
      const where = !each.cloud ? each.where : each.where ? t`${each.where} of cloud ${each.cloud}` : t`cloud ${each.cloud}`;
      lines.push(t`No answer from ${where || t`the cloud`}: ${each.reason}. ${
        each.known ? t`What it showed last counts, and nothing is done there.` : t`It is not known what is there.`}`);
    }
    if (fleet.trouble) lines.push(t`The newest round saw nothing: ${fleet.trouble} Below is the one before.`);
    else if (!lost && old > 3 * fleet.interval_seconds + 30) lines.push(t`There was no round for ${span(old)}; one is due each ${span(fleet.interval_seconds)}.`);
    const uses = new Set([...byId.values()].map(use).filter((each) => each !== "off"));
    if (uses.size === 1 && uses.has("unknown")) lines.push(t`The use of no running machine is known, so no idle one is found and none is stopped. Open a machine for the reason and what to do.`);
    for (const pause of fleet.pauses) lines.push(t`Paused: ${pauseWords(pause)}.`);
  }
  $("banner").hidden = !lines.length;
  put($("banner"), listed(lines, " "));
}

function drawUses() {
  const by = fleet.totals.gpus_by_activity;
  if (!$("uses").children.length) {
    for (const name of USES) {
      const button = el("button", { type: "button", title: word(MEANINGS[name]), onclick: () => toggle(name) }, dot(name), el("span"));
      button.dataset.use = name;
      $("uses").append(button);
      $("bar").append(el("span", { className: name }));
      $("meanings").append(el("dt", {}, word(name)), el("dd", {}, word(MEANINGS[name])));
    }
  }
  USES.forEach((name, index) => {
    const button = $("uses").children[index];
    put(button.lastChild, `${word(name)} ${number(by[name])}`);
    button.setAttribute("aria-pressed", String(wanted.uses.has(name)));
    $("bar").children[index].style.width = `${100 * by[name] / Math.max(1, fleet.totals.gpus)}%`;
  });
}

function toggle(name) {
  if (!wanted.uses.delete(name)) wanted.uses.add(name);
  filtered();
}

function drawRows() {
  const page = shown.slice(first, first + ROWS), body = $("rows");
  while (body.children.length > page.length) body.lastChild.remove();
  while (body.children.length < page.length) body.append(emptyRow());
  page.forEach((node, index) => fill(body.children[index], node));
  put($("count"), shown.length === fleet.nodes.length ? count(shown.length, "node") : t`${number(shown.length)} of ${count(fleet.nodes.length, "node")}`);
  put($("where"), shown.length ? t`${first + 1} – ${first + page.length} of ${number(shown.length)}` : t`none`);
  $("back").disabled = first === 0;
  $("forth").disabled = first + ROWS >= shown.length;
}

function emptyRow() {
  const name = el("button", { type: "button", className: "name" });
  const row = el("tr", { role: "row" },
    el("td", { role: "cell" }, name, el("small")),
    el("td", { role: "cell", className: "mid" }, el("span"), el("small")),
    el("td", { role: "cell" }, el("span", {}, dot("off"), el("span")), el("small")),
    el("td", { role: "cell" }, el("span"), el("small")),
    el("td", { role: "cell", className: "why far" }, el("div")),
    el("td", { role: "cell", className: "mid num" }));
  row.onclick = () => { if (!String(getSelection())) explain(row.dataset.id); };
  name.onclick = (event) => { event.stopPropagation(); explain(row.dataset.id); };
  return row;
}

function fill(row, node) {
  if (row.dataset.id !== node.id) row.dataset.id = node.id;
  const [name, pool, doing, next, why, price] = row.children;
  put(name.firstChild, title(node));
  put(name.lastChild, [node.id !== node.name && node.id, node.gpus.length && count(node.gpus.length, "GPU"), node.instance_type, node.cloud && t`cloud ${node.cloud}`].filter(Boolean).join(" · "));
  put(pool.firstChild, node.pool);
  put(pool.lastChild, node.enrolled ? node.owner ?? "" : t`not enrolled`);
  const dotted = doing.firstChild;
  if (dotted.firstChild.className !== `dot ${use(node)}`) dotted.firstChild.className = `dot ${use(node)}`;
  put(dotted.lastChild, word(node.activity ?? node.state));
  put(doing.lastChild, node.held_seconds == null ? node.doubt ?? "" : t`for ${span(node.held_seconds + (now() - Date.parse(fleet.at)) / 1000)}`);
  const [main, more] = nextWords(node.next);
  put(next.firstChild, main);
  put(next.lastChild, more);
  const words = whyWords(node);
  put(why.firstChild, words);
  if (why.title !== words) why.title = words;
  put(price, node.usd_per_hour == null ? "–" : inOurs(node.usd_per_hour).toFixed(2));
  const told = node.usd_per_hour == null ? "" : t`${usd(node.usd_per_hour)}/h${priceDay(node)}`;
  if (price.title !== told) price.title = told;
}

// --- hands -------------------------------------------------------------------------------------------------------
function theme(turn) {
  const order = ["auto", "light", "dark"];
  let name = order[0];
  try { name = localStorage.getItem("gpuwatch-theme") ?? name; } catch { /* a browser that keeps nothing */ }
  if (turn) name = order[(order.indexOf(name) + 1) % 3];
  try { localStorage.setItem("gpuwatch-theme", name); } catch { /* the same */ }
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  put($("theme"), t`Theme: ${word(name)}`);
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
