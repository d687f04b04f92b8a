// What holds savings back: asks for /api/v1/blocked when a round is new. Words and elements are the page's own.
"use strict";

async function askBlocked() {
  const found = await ask("/blocked").catch(() => null);
  if (found) drawBlocked(found);
}

function drawBlocked(found) {
  const held = found.blocked;
  $("held-card").hidden = !held.nodes && !found.blocked_soon.nodes && !found.in_doubt.nodes && !found.foreign.nodes;
  $("held-sum").textContent = t`${perDay(held)} a day, ${count(held.nodes, "node")}`;
  const groups = found.groups.slice(0, 6).map((group) => el("li", {},
    el("strong", {}, group.name), t` ${perDay(group.money)} a day, ${count(group.money.nodes, "node")}`, el("br"),
    el("small", {}, t`To free it: ${group.act}. Risk: ${group.risk}.${alsoHeld(group)}`)));
  if (found.groups.length > 6) groups.push(el("li", { className: "faint" }, t`and ${found.groups.length - 6} more: gpuwatch blocked`));
  for (const [money, words] of [[found.blocked_soon, t`idle, but not yet for long enough; then blocked`], [found.in_doubt, t`of unknown use, so not counted`], [found.foreign, t`not ours, so not counted`]]) {
    if (money.nodes) groups.push(el("li", { className: "faint" }, t`${perDay(money)} a day ${words}: ${count(money.nodes, "node")}`));
  }
  list("held", groups, "");
}

const perDay = (money) => money.nodes && money.unpriced === money.nodes ? t`unknown sum` : usd(money.usd_per_day) + (money.unpriced ? "+?" : "");

function alsoHeld(group) {
  const alone = group.frees[0].money;
  return alone.nodes === group.money.nodes ? "" : t` Alone it frees ${perDay(alone)}; something else holds the rest, too.`;
}
