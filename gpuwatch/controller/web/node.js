// One node explained, kept and approved.
// One of the page's scripts: they load in the order of page.html and share their names; page.js starts them.
"use strict";
// --- one node explained ------------------------------------------------------------------------------------------
async function explain(id, again = false) {
  const dialog = $("detail");
  dialog.dataset.node = id;
  if (!again) {
    put($("detail-title"), title(byId.get(id) ?? { id, name: id }));
    $("detail-body").replaceChildren(el("p", { className: "faint" }, t`asking …`));
    if (!dialog.open) dialog.showModal();
  }
  try {
    const page = await ask(`/nodes/${encodeURIComponent(id)}`);
    const filling = again && document.activeElement?.closest("#snooze, #approve");
    if (dialog.dataset.node === id && !filling) {
      $("detail-body").replaceChildren(...explained(page));
      drawStrip(page.row.id);
    }
  } catch (error) {
    if (dialog.dataset.node === id) $("detail-body").replaceChildren(el("p", {}, error.message));
  }
}

function explained(page) {
  const { row, activity, step, if_stopped_now: review } = page, running = row.activity != null;
  const [main, more] = nextWords(row.next);
  const facts = {
    [t`Use`]: !running ? word(row.state) : row.held_seconds == null ? t`${word(row.activity)}: ${row.doubt ?? ""}` : t`${word(row.activity)} for ${span(row.held_seconds)}`,
    [t`Last sign of use`]: page.last_reset,
    [t`Work of`]: listed(page.owners, "; ") || null,
    [t`Next`]: main === "–" ? t`nothing` : more ? t`${main} (${more})` : main,
    [t`Why`]: whyWords(row),
    [t`What would change it`]: step.change,
    [t`Node`]: t`${row.id}, ${row.instance_type} (${word(row.capacity_type)}) in ${row.zone}, pool ${row.pool}${row.enrolled ? "" : t`, not enrolled`}`,
    [t`Owner`]: row.owner,
    [t`Price`]: row.usd_per_hour == null ? t`not known` : t`${usd(row.usd_per_hour)}/h${priceDay(row)}`,
    [t`Agent`]: page.agent_version == null ? null : t`${page.agent_version}, its verdict was ${span(page.verdict_age_seconds)} old`,
    [t`Its agent cannot see`]: listed(page.blind, " ") || null,
    [t`Its pool`]: listed(page.pool_reasons, "; ") || null,
  };
  const parts = [el("dl", { className: "facts" }, ...Object.entries(facts).filter(([, value]) => value).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))];
  if (activity.evidence.length) {
    parts.push(el("h3", {}, t`Evidence`), table([t`Signal`, t`Says`, t`Seen`, t`Limit`, t`Source`], activity.evidence.map((each) =>
      [each.name, word(each.says), quantity(each.observed, each.unit), quantity(each.limit, each.unit), each.note ? t`${each.source}; ${each.note}` : each.source])));
  }
  parts.push(el("h3", {}, t`Last 24 hours`), el("div", { id: "strip" }, el("p", { className: "faint" }, t`asking …`)));
  parts.push(...lastBusy(page));
  if (page.gpus.length) {
    parts.push(el("h3", {}, t`GPUs`), table([t`GPU`, t`Use`, t`Utilization`, t`Memory`, t`Health`], page.gpus.map((gpu) =>
      [gpu.index ?? gpu.uuid, gpu.activity.doubt ? t`${word(gpu.activity.state)}: ${gpu.activity.doubt}` : word(gpu.activity.state), percent(gpu.use?.utilization_ratio), percent(gpu.use?.memory_used_ratio),
        gpu.health ? listed([word(gpu.health.state), ...gpu.health.findings.map((each) => t`${each.sentence} Remedy: ${each.remedy}.`)], ". ") : "–"])));
  }
  const answers = [...review.answers].sort((a, b) => b.refused - a.refused);
  const said = (each) => el("span", { className: each.refused ? "refuses" : "faint" }, each.refused ? t`refuses` : t`agrees`);
  parts.push(el("h3", {}, t`The guard, were it to ${word(review.step.verb)} now`), table([t`Rule`, t`Answer`, t`Why`], answers.map((each) => [each.rule, said(each), each.refused ? listed([each.sentence, each.remedy], " ") : each.sentence])));
  parts.push(el("h3", {}, t`Ledger`), page.history.length ? table([t`At`, t`What`, t`Why`, t`What came of it`], page.history.map((entry) =>
    [when(entry.intent.at), word(entry.intent.verb), entry.intent.reason.sentence, listed(entry.outcomes.map((each) => t`${word(each.status)}: ${each.detail}`), "; ") || t`open`])) : el("p", { className: "faint" }, t`gpuwatch has never acted on it.`));
  if (page.approval) parts.push(el("h3", {}, t`To approve it`), approving(page));
  parts.push(el("h3", {}, t`To keep it`), keeping(page));
  return parts;
}

// What set the idle time to zero last; an older agent, and Prometheus, do not say.
function lastBusy(page) {
  if (!page.last_busy.length && !page.agent_started_at) return [];
  const since = page.agent_started_at ? t` since the agent started at ${when(page.agent_started_at)}` : "";
  if (!page.last_busy.length) return [el("h3", {}, t`Busy last${""}`), el("p", { className: "faint" }, t`Nothing${since}; what was before is not known.`)];
  const rows = page.last_busy.map(({ evidence, at, ago_seconds: ago, amount, who }) =>
    [ago === 0 ? t`now` : t`${when(at)}, ${span(ago)} ago`, t`${evidence.name}: ${word(evidence.says)}`, amount ?? "–", who ?? "–", evidence.setting ?? "–"]);
  return [el("h3", {}, t`Busy last${since}`), table([t`When`, t`Signal`, t`Seen`, t`Who`, t`Setting to change`], rows)];
}

const reasoned = (reason) => reason ? t`: ${reason}` : "";

function approving(page) {
  const { row, approval } = page, next = row.next, path = `/nodes/${encodeURIComponent(row.id)}/approve`;
  if (approval.who) return el("p", {}, t`Approved ${when(approval.at)} by ${approval.who}${reasoned(approval.reason)}. It goes if it still has no use then.`);
  if (!session?.may_act) return el("p", {}, t`It goes only once an operator says yes, here or by `, el("code", {}, `gpuwatch approve ${row.id}`), ".");
  const box = el("div", { id: "approve" });
  const why = el("input", { id: "approve-why", maxLength: 500, autocomplete: "off" });
  const first = el("form", {}, el("label", { className: "grow" }, t`Reason`, " ", why), el("button", { type: "submit" }, t`Approve …`));
  const said = el("p", { id: "approve-status", role: "status" });
  const ask = () => { box.replaceChildren(first, said); why.focus(); };
  const yes = async () => {
    try {
      await act("POST", path, { reason: why.value, notice: approval.notice });
      $("detail").querySelector("[data-close]").focus();
      explain(row.id, true);
    } catch (error) {
      put(said, t`Not done: ${error.message}.`);
      ask();
    }
  };
  first.onsubmit = (event) => {
    event.preventDefault();
    put(said, "");
    const left = next ? (Date.parse(next.removal_at ?? next.at) - now()) / 1000 : 0;
    const time = left > 5 ? t`at ${when(next.removal_at ?? next.at)} at the earliest` : t`with the next round`;
    const verb = word(next?.verb ?? "remove"), sure = el("p", { id: "approve-sure" }, el("strong", {}, t`Let gpuwatch ${verb} ${title(row)}?`), t` ${row.id} of pool ${row.pool} goes ${time}. ${page.step.reason.sentence}${page.snooze ? t` It is kept until ${when(page.snooze.until)}.` : ""}${why.value ? t` Your reason: ${why.value}` : ""}`);
    const button = el("button", { type: "button", id: "approve-yes", onclick: yes }, t`Yes, ${verb} it`);
    box.replaceChildren(el("div", { role: "group", "aria-labelledby": "approve-sure" }, sure, el("div", { className: "row" }, button, el("button", { type: "button", onclick: ask }, t`No, back`))));
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
      put($("snooze-status"), t`Not done: ${error.message}.`);
    }
  };
  const kept = page.snooze ? t`It is kept until ${when(page.snooze.until)} by ${page.snooze.who}${reasoned(page.snooze.reason)}. ` : "";
  if (!session?.may_act) return el("p", { id: "snooze-status" }, kept, t`On the node `, el("code", {}, "gpuwatch snooze 4h"), t`, or in the cloud the tag `, el("code", {}, "gpuwatch:snooze-until"), t` with a time.`);
  const times = [[3600, t`1 hour`], [14400, t`4 hours`], [86400, t`1 day`], [259200, t`3 days`], [604800, t`7 days`]].filter(([seconds]) => seconds <= page.max_snooze_seconds);
  const howLong = el("select", { id: "snooze-for" }, ...times.map(([seconds, name]) => el("option", { value: seconds }, name)));
  const why = el("input", { id: "snooze-why", maxLength: 500, autocomplete: "off" });
  const form = el("form", { id: "snooze" }, el("label", {}, t`For`, " ", howLong), el("label", { className: "grow" }, t`Reason`, " ", why), el("button", { type: "submit" }, t`Keep`));
  form.onsubmit = (event) => { event.preventDefault(); order("POST", { seconds: Number(howLong.value), reason: why.value }); };
  const back = page.snooze ? el("button", { type: "button", id: "let-go", onclick: () => order("DELETE") }, t`Let it go`) : null;
  return el("div", {}, el("p", { id: "snooze-status" }, kept, kept ? t`It holds from the next round on. ` : "", back), times.length ? form : null);
}

const short = (value) => String(Number(value.toPrecision(Math.abs(value) < 100 ? 3 : 4)));
const SIZES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];

// As `gpuwatch explain` writes it: 0.86 GB, 16.7 MB/s, 37 %.
function quantity(value, unit) {
  if (value == null) return "–";
  if (unit === "ratio") return `${short(100 * value)} %`;
  if (unit === "seconds") return span(value);
  if (unit !== "bytes" && unit !== "bytes per second") return `${short(value)} ${word(unit)}`;
  const [size, name] = SIZES.find(([size]) => Math.abs(value) >= 0.5 * size) ?? [1, t`bytes`];
  return `${short(value / size)} ${name}${unit === "bytes" ? "" : t`/s`}`;
}

function table(heads, rows) {
  const made = el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, cell instanceof Node ? cell : String(cell)))))));
  return el("div", { className: "wide-table", tabIndex: 0, role: "region", ariaLabel: listed(heads) }, made);
}
