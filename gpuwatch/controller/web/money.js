// What the fleet costs, and what stops have saved.
// One of the page's scripts: they load in the order of page.html and share their names; page.js starts them.
"use strict";
async function askMoney() {
  const minute = fleet.at.slice(0, 16);
  if (minute === moneyOf) return;
  moneyOf = minute;
  const paths = { day: "/cost?period=today&by=pool", month: "/cost?period=month&by=pool", saved: "/savings", began: "/progress" };
  const answers = await Promise.allSettled(Object.values(paths).map((path) => ask(path)));
  for (const [index, name] of Object.keys(paths).entries()) money[name] = answers[index].value ?? null;
  drawMoney();
  askTimeline();
}

// A share of dollars stands beside dollars; without a price it is one of GPU-hours, and says so. Proven waste comes first.
function wastedOf(total) {
  const foreign = total.foreign_machine_hours ? t`; not ours: ${about(total.usd_foreign)}` : "";
  const lacks = (total.unpriced_machine_hours ? t`; ${total.unpriced_machine_hours.toFixed(1)} machine-hours without a price` : "") + foreign;
  if (total.usd_waste_ratio !== null) {
    const unproven = Number(total.usd_unproven) ? t`; use not known: ${about(total.usd_unproven)}` : "";
    return t`${about(total.usd_wasted)} wasted, which is ${percent(total.usd_waste_ratio)}${unproven}${lacks}`;
  }
  if (total.waste_ratio === null) return t`nothing is billed yet${foreign}`;
  const unproven = total.unproven_ratio ? t`; use of ${percent(total.unproven_ratio)} not known` : "";
  return t`${percent(total.waste_ratio)} of the GPU-hours wasted${unproven}${lacks}`;
}

function drawMoney() {
  const totals = fleet.totals;
  put($("now-usd"), t`${about(totals.usd_per_hour)}/h`);
  const lacks = totals.unpriced ? t`; ${count(totals.unpriced, "node")} without a price` : "";
  const foreign = totals.foreign ? t`; not ours: ${count(totals.foreign, "node")}, ${about(totals.usd_per_hour_foreign)}/h` : "";
  put($("now-more"), t`${about(totals.usd_per_hour_not_used)}/h not used${lacks}${foreign}`);
  const oldest = fleet.nodes.reduce((old, node) => node.price_as_of && (!old || node.price_as_of < old.price_as_of) ? node : old, null);
  put($("now-prices"), listed([oldest && t`oldest price: ${ageOf(oldest)}`, totals.elsewhere].filter(Boolean), ". "));
  for (const name of ["day", "month"]) {
    const cost = money[name];
    put($(`${name}-usd`), cost ? about(cost.total.usd ?? (cost.total.machine_hours ? null : 0)) : "–");
    put($(`${name}-more`), !cost ? t`not known` : cost.metered_since === null ? t`nothing is metered yet` : wastedOf(cost.total));
  }
  drawSavings();
  drawProgress();
}

// The first weeks of metering against the last ones; nothing until there are two weeks.
function drawProgress() {
  const found = money.began?.progress;
  $("began-tile").hidden = !found;
  if (!found) return;
  put($("began-share"), `${percent(found.first.usd_waste_ratio)} → ${percent(found.last.usd_waste_ratio)}`);
  const weekly = found.usd_avoided == null ? null : Number(found.usd_avoided) / found.weeks;
  const less = weekly == null ? "" : weekly < 0 ? t`, ${about(-weekly)} a week more for the same work` : t`, ${about(weekly)} a week less for the same work`;
  put($("began-more"), t`of the cost: ${count(found.weeks, "week")} from ${found.first_day} against those from ${found.last_day}${less}`);
}

// Today and this month are the same until the second day on record.
const firstDay = (day, month) => day != null && month != null && (day.since === month.since || (day.metered_since ?? day.since) >= day.since);

function drawSavings() {
  const saved = money.saved, same = firstDay(money.day, money.month);
  $("month-tile").hidden = same;
  put($("day-title"), same && money.day.metered_since > money.day.since ? t`Today, since ${when(money.day.metered_since)}` : t`Today`);
  if (!saved) {
    put($("saved-usd"), "–");
    put($("saved-more"), t`not known`);
    return;
  }
  const sum = saved.month, metered = saved.metered_since;
  const since = metered != null && metered > sum.since ? when(metered) : new Date(sum.since).toLocaleDateString("en-CA", { timeZone: saved.timezone });
  const unpriced = sum.unpriced_machine_hours ? t`; ${sum.unpriced_machine_hours.toFixed(1)} machine-hours without a price` : "";
  put($("saved-usd"), about(sum.usd));
  put($("saved-more"), `${same ? "" : t`${about(saved.today.usd)} today; `}${sum.stops ? t`by ${count(sum.stops, "stop")} since ${since}` : t`no stop yet since ${since}`}${unpriced}`);
}
