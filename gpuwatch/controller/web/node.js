// One node explained, kept and approved.
// One of the page's scripts: they load in the order of page.html and share their names; page.js starts them.
"use strict";
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
    "Use": running ? `${row.activity}${row.held_seconds == null ? `: ${row.doubt ?? ""}` : ` for ${span(row.held_seconds)}`}` : row.state,
    "Last reset": page.last_reset,
    "Work of": page.owners.join("; ") || null,
    "Next": main === "–" ? "nothing" : `${main}${more ? ` (${more})` : ""}`,
    "Why": whyWords(row),
    "What would change it": step.change,
    "Node": `${row.id}, ${row.instance_type} (${row.capacity_type}) in ${row.zone}, pool ${row.pool}${row.enrolled ? "" : ", not enrolled"}`,
    "Owner": row.owner,
    "Price": row.usd_per_hour == null ? "not known" : `${usd(row.usd_per_hour)}/h${priceDay(row)}`,
    "Agent": page.agent_version == null ? null : `${page.agent_version}, its verdict was ${span(page.verdict_age_seconds)} old`,
    "Its agent cannot see": page.blind.join(" ") || null,
    "Its pool": page.pool_reasons.join("; ") || null,
  };
  const parts = [el("dl", { className: "facts" }, ...Object.entries(facts).filter(([, value]) => value).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))];
  if (activity.evidence.length) {
    parts.push(el("h3", {}, "Evidence"), table(["Signal", "Says", "Seen", "Limit", "Source"], activity.evidence.map((each) =>
      [each.name, each.says, quantity(each.observed, each.unit), quantity(each.limit, each.unit), each.note ? `${each.source}; ${each.note}` : each.source])));
  }
  parts.push(el("h3", {}, "Last 24 hours"), el("div", { id: "strip" }, el("p", { className: "faint" }, "asking …")));
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

const number = (value) => String(Number(value.toPrecision(Math.abs(value) < 100 ? 3 : 4)));
const SIZES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];

// As `gpuwatch explain` writes it: 0.86 GB, 16.7 MB/s, 37 %.
function quantity(value, unit) {
  if (value == null) return "–";
  if (unit === "ratio") return `${number(100 * value)} %`;
  if (unit === "seconds") return span(value);
  if (unit !== "bytes" && unit !== "bytes per second") return `${number(value)} ${unit}`;
  const [size, word] = SIZES.find(([size]) => Math.abs(value) >= 0.5 * size) ?? [1, "bytes"];
  return `${number(value / size)} ${word}${unit === "bytes" ? "" : "/s"}`;
}

function table(heads, rows) {
  const made = el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, cell instanceof Node ? cell : String(cell)))))));
  return el("div", { className: "wide-table", tabIndex: 0, role: "region", ariaLabel: heads.join(", ") }, made);
}
