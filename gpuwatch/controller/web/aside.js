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
  if (going.length > 8) items.push(el("li", { className: "faint" }, `and ${going.length - 8} more`));
  if (asking) items.unshift(el("li", {}, opensFilter("approval", `${count(asking, "node")} ${asking === 1 ? "waits" : "wait"} for approval`)));
  if (held) items.push(el("li", { className: "faint" }, `${count(held, "step")} held back by the guard`));
  list("coming", items, "Nothing; all stays as it is.");

  $("budget-card").hidden = !fleet.budgets.length;
  list("budgets", fleet.budgets.map(budget), "");

  drawKubernetes();
  list("pools", fleet.pools.map((pool) => el("li", {},
    el("strong", {}, pool.name), ` ${pool.running} of ${count(pool.nodes, "node")} running, ${count(pool.gpus, "GPU")}, ${about(pool.usd_per_hour)}/h`,
    pool.target == null ? null : `, target ${count(pool.target, pool.unit === "gpus" ? "GPU" : "node")}`, el("br"), el("small", {}, [pool.rule, ...pool.clamps, ...regretted(pool)].join(". ")))), "There are none.");

  list("actions", fleet.actions.slice(0, 10).map((action) => el("li", {},
    `${when(action.at)} ${action.verb} `, opener(action.target), el("small", {}, ` by ${action.who}: ${action.why.replace(/\.$/, "")}${approvedWords(action)}`),
    el("br"), el("small", {}, `→ ${action.status}${action.open ? ", under way" : ""}${action.detail ? `: ${action.detail}` : ""}`))), "Nothing.");

  $("advice-card").hidden = !fleet.advice.length;
  const hints = fleet.advice.slice(0, 8).map((hint) => el("li", {}, opener(hint.target), " ", el("small", {}, hint.sentence)));
  if (fleet.advice.length > 8) hints.push(el("li", { className: "faint" }, `and ${fleet.advice.length - 8} more`));
  list("advice", hints, "");
  drawPauses();
}

function budget(each) {
  const ratio = each.spent_usd == null ? 0 : Number(each.spent_usd) / Number(each.usd_per_month);
  const bar = el("progress", { max: 1, value: Math.min(1, ratio), className: ratio > 1 ? "over" : "", ariaLabel: `spent of budget ${each.name}` });
  const early = each.doubt ? "" : ", too early for a forecast: it needs a day of history";
  const ends = each.forecast_usd == null ? early : `, ${each.month} ends at ${usd(each.forecast_usd)} as usual`;
  const within = each.lower_usd == null ? "" : ` (80 %: ${usd(each.lower_usd)} to ${usd(each.upper_usd)})`;
  const rate = each.present_rate_usd == null ? "" : `, at the present rate at ${usd(each.present_rate_usd)}`;
  const changed = each.change == null ? "" : `. The fleet has changed: ${each.change}`;
  const risk = each.probability_over == null ? "" : `; over with ${percent(each.probability_over)}`;
  return el("li", {}, el("strong", {}, each.name), ` ${usd(each.spent_usd)} of ${usd(each.usd_per_month)}`, bar,
    el("small", {}, `${each.scope}${ends}${within}${risk}${rate}${changed}${each.blocked ? `. No machine is added: ${each.blocked}` : ""}${each.doubt ? `. ${each.doubt}` : ""}`));
}

// --- pauses ------------------------------------------------------------------------------------------------------
const regretted = (pool) => (pool.regretted_stops ? [`${pool.regretted_stops} of ${count(pool.stops, "stop")} in the last 30 days ${pool.regretted_stops === 1 ? "was" : "were"} taken back within an hour`] : []);

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
