// What stands beside the table: what comes next, budgets, pools, what was done, advice and pauses.
// One of the page's scripts: they load in the order of page.html and share their names; page.js starts them.
"use strict";
function drawAside() {
  const going = fleet.nodes.filter((node) => node.next && !node.next.refused_by.length).sort(rank.next);
  const held = fleet.nodes.filter((node) => node.next && node.next.refused_by.length && !waits(node)).length;
  const asking = fleet.nodes.filter(waits).length;
  const items = going.slice(0, 8).map((node) => {
    const [main, more] = nextWords(node.next);
    return el("li", {}, opener(node.id), ` ${main} `, el("small", {}, more));
  });
  if (going.length > 8) items.push(el("li", { className: "faint" }, t`and ${going.length - 8} more`));
  if (asking) items.unshift(el("li", {}, opensFilter("approval", asking === 1 ? t`1 node waits for approval` : t`${number(asking)} nodes wait for approval`)));
  if (held) items.push(el("li", { className: "faint" }, t`${count(held, "step")} held back by the guard`));
  list("coming", items, t`Nothing; all stays as it is.`);

  $("budget-card").hidden = !fleet.budgets.length;
  list("budgets", fleet.budgets.map(budget), "");

  drawKubernetes();
  drawHealth();
  list("pools", fleet.pools.map((pool) => el("li", {},
    el("strong", {}, pool.name), t` ${pool.running} of ${count(pool.nodes, "node")} running, ${count(pool.gpus, "GPU")}, ${about(pool.usd_per_hour)}/h`,
    pool.target == null ? null : t`, target ${count(pool.target, pool.unit === "gpus" ? "GPU" : "node")}`, el("br"), el("small", {}, listed([pool.rule, ...pool.clamps, ...regretted(pool)].map(undotted), ". ")))), t`There are none.`);

  list("actions", fleet.actions.slice(0, 10).map((action) => el("li", {},
    `${when(action.at)} ${word(action.verb)} `, opener(action.target), el("small", {}, t` by ${action.who}: ${undotted(action.why)}${approvedWords(action)}`),
    el("br"), el("small", {}, `→ ${word(action.status)}${action.open ? t`, under way` : ""}${action.detail ? t`: ${action.detail}` : ""}`))), t`Nothing.`);

  $("advice-card").hidden = !fleet.advice.length;
  const hints = fleet.advice.slice(0, 8).map((hint) => el("li", {}, opener(hint.target), " ", el("small", {}, hint.sentence)));
  if (fleet.advice.length > 8) hints.push(el("li", { className: "faint" }, t`and ${fleet.advice.length - 8} more`));
  list("advice", hints, "");
  drawPauses();
}

// Rounded down, so that 100 % has no exception.
const share = (ratio) => t`${Math.floor(1000 * ratio) / 10} % healthy`;

function drawHealth() {
  const health = fleet.health;
  $("health-card").hidden = !health;
  put($("health-sum"), health ? share(health.ratios.healthy) : "");
  list("health", (health?.by_driver ?? []).map((each) => {
    const others = HEALTHS.slice(1).filter((state) => each.ratios[state]).map((state) => `${number(Math.round(each.gpus * each.ratios[state]))} ${word(state)}`);
    return el("li", {}, el("strong", {}, each.instance_type), each.driver ? t` driver ${each.driver}: ${share(each.ratios.healthy)}` : t` driver not known: ${share(each.ratios.healthy)}`,
      el("br"), el("small", {}, listed([t`of ${count(Math.round(each.gpus), "GPU")}`, ...others])));
  }), "");
}

function budget(each) {
  const ratio = each.spent_usd == null ? 0 : Number(each.spent_usd) / Number(each.usd_per_month);
  const bar = el("progress", { max: 1, value: Math.min(1, ratio), className: ratio > 1 ? "over" : "", ariaLabel: t`spent of budget ${each.name}` });
  const early = each.doubt ? "" : t`, too early for a forecast: it needs a day of history`;
  const ends = each.forecast_usd == null ? early : t`, ${each.month} ends at ${usd(each.forecast_usd)} as usual`;
  const within = each.lower_usd == null ? "" : t` (80 %: ${usd(each.lower_usd)} to ${usd(each.upper_usd)})`;
  const rate = each.present_rate_usd == null ? "" : t`, at the present rate at ${usd(each.present_rate_usd)}`;
  const changed = each.change == null ? "" : t`. The fleet has changed: ${each.change}`;
  const risk = each.probability_over == null ? "" : t`; over with ${percent(each.probability_over)}`;
  return el("li", {}, el("strong", {}, each.name), t` ${usd(each.spent_usd)} of ${usd(each.usd_per_month)}`, bar,
    el("small", {}, `${each.scope}${ends}${within}${risk}${rate}${changed}${each.blocked ? t`. No machine is added: ${each.blocked}` : ""}${each.doubt ? t`. ${each.doubt}` : ""}`));
}

// --- pauses ------------------------------------------------------------------------------------------------------
const regretted = (pool) => (pool.regretted_stops ? [t`stops taken back within an hour, in the last 30 days: ${pool.regretted_stops} of ${pool.stops}`] : []);

const pauseWords = (pause) => t`${pause.pool == null ? t`all pools` : t`pool ${pause.pool}`} ${pause.until ? t`until ${when(pause.until)}` : t`until somebody resumes it`}, by ${pause.who}${reasoned(pause.reason)}`;

function drawPauses() {
  const may = session?.may_act;
  list("pauses", fleet.pauses.map((pause) => {
    const button = may ? el("button", { type: "button", onclick: () => ordered("DELETE", pause.pool == null ? "/pauses" : `/pauses/${encodeURIComponent(pause.pool)}`) }, pause.pool == null ? t`Resume all` : t`Resume`) : null;
    if (button) button.dataset.key = `resume ${pause.pool}`;
    return el("li", {}, `${pauseWords(pause)} `, button);
  }), t`None.`);
  $("pause").hidden = !may;
  put($("may-not"), session && !may ? t`You may read only: ${session.why_not}.` : "");
}

async function ordered(method, path, body) {
  try {
    await act(method, path, body);
    lost = "";
    fleet.pauses = (await ask("/pauses")).pauses;
  } catch (error) {
    lost = t`Not done: ${error.message}.`;
  }
  drawPauses();
  banner();
}
