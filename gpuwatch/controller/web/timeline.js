// The last day by use: the fleet's GPUs as a stack, one node as a strip, with notices and stops above.
// One of the page's scripts: they load in the order of page.html and share their names; page.js starts them.
"use strict";
const SVG = "http://www.w3.org/2000/svg";
const STACK = ["busy", "occupied", "parked", "stalled", "idle", "unknown", "off"]; // from the ground up
const HOUR = 3600;
const LANE = 12; // of 100, above: what was done
const MARKS = { notice: t`noticed`, stop: t`stopped`, terminate: t`terminated`, start: t`started`, launch: t`launched`, withdraw: t`withdrew a notice` };
let past = null; // the newest /timeline

async function askTimeline() {
  past = await ask("/timeline").catch(() => null);
  drawTimeline();
}

const seconds = (iso) => Date.parse(iso) / 1000;

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// What is drawn: from the first slot that is known, an hour at least.
function drawn(since, until, known) {
  const from = Math.max(since, Math.min(known ?? until, until - HOUR));
  return { from, until, width: Math.max(1, until - from) };
}

// A picture as wide as its place, x in seconds; the words are for those who do not see it.
let pictures = 0;
function picture(box, high, name, words, ...children) {
  pictures += 1;
  const [title, told] = [`picture-title-${pictures}`, `picture-words-${pictures}`];
  return svg("svg", { viewBox: `0 0 ${box.width} ${high}`, preserveAspectRatio: "none", role: "img", "aria-labelledby": title, "aria-describedby": told },
    svg("title", { id: title }, name), svg("desc", { id: told }, words), ...children);
}

const bar = (x, y, width, high) => `M${x} ${y}h${width}v${high}h${-width}z`;

function axis(box) {
  const hours = box.width / HOUR, each = [1 / 6, 0.5, 1, 2, 4, 6].find((step) => hours / step <= 7) ?? 6;
  const zone = new Date(box.until * 1000).getTimezoneOffset() * 60, marks = [];
  const step = each * HOUR;
  for (let at = Math.ceil((box.from - zone) / step) * step + zone; at < box.until; at += step) marks.push(at);
  const place = el("div", { className: "axis faint", ariaHidden: "true" });
  for (const at of marks) {
    // Without the date: within a day a time is one moment, and seven with dates have no room on a phone.
    const label = el("span", {}, timeOf(new Date(at * 1000)));
    label.style.left = `${100 * (at - box.from) / box.width}%`;
    if ((at - box.from) / box.width < 0.94) place.append(label);
  }
  return place;
}

function markLines(box, marks, high) {
  return marks.map(({ at, verb, words }) => {
    const x = at - box.from;
    return svg("path", { class: `mark ${verb}`, d: `M${x} 0v${high}` }, svg("title", {}, words));
  });
}

// --- the fleet ---------------------------------------------------------------------------------------------------
const slotWords = (slot) => slot == null ? t`no data` : listed(past.uses.map((name, index) => [name, slot[index]]).filter(([, value]) => value > 0)
  .map(([name, value]) => t`${number(Math.round(value))} ${word(name)}`)) || t`no GPU`;
const clock = (at) => when(new Date(at * 1000));

function drawTimeline() {
  const place = $("past");
  if (!past) {
    put($("past-sum"), t`not known`);
    place.replaceChildren();
    return;
  }
  const since = seconds(past.since), step = past.slot_seconds, first = past.gpus.findIndex((slot) => slot != null);
  const box = drawn(since, Math.max(seconds(past.until), since + past.gpus.length * step), first < 0 ? null : since + first * step);
  const most = Math.max(1, ...past.gpus.map((slot) => slot == null ? 0 : slot.reduce((sum, value) => sum + value, 0)));
  const paths = Object.fromEntries(STACK.map((name) => [name, ""])), gaps = [], hover = [];
  past.gpus.forEach((slot, index) => {
    const at = since + index * step, x = at - box.from;
    if (x + step <= 0) return;
    if (slot == null) {
      const last = gaps.at(-1);
      if (last && last.end === x) last.end = x + step;
      else gaps.push({ x, end: x + step });
    } else {
      let y = 100;
      for (const name of STACK) {
        const high = (100 - LANE) * slot[past.uses.indexOf(name)] / most;
        if (!high) continue;
        y -= high;
        paths[name] += bar(x, y.toFixed(2), step, high.toFixed(2));
      }
    }
    hover.push(svg("path", { class: "hover", d: bar(x, 0, step, 100) }, svg("title", {}, t`${clock(at)}: ${slotWords(slot)}${doneWords(at)}`)));
  });
  const marks = past.marks.filter((mark) => mark.verb in MARKS).map((mark) => ({ at: seconds(mark.at) + step / 2, verb: mark.verb, words: t`${clock(seconds(mark.at))}: ${MARKS[mark.verb]} ${mark.count}` }));
  const sum = timelineSum();
  place.replaceChildren(
    picture(box, 100, t`GPUs by use over the last 24 hours`, t`${sum}. The table below has the same by the hour.`,
      ...STACK.map((name) => svg("path", { class: name, d: paths[name] })), svg("path", { class: "gap", d: gaps.map((gap) => bar(gap.x, LANE, gap.end - gap.x, 100 - LANE)).join("") }),
      ...hover, ...markLines(box, marks, LANE - 2)), axis(box));
  put($("past-sum"), sum);
  if ($("past-table").open) drawPastTable();
}

const doneWords = (at) => past.marks.filter((mark) => mark.verb in MARKS && seconds(mark.at) === at).map((mark) => t`; ${MARKS[mark.verb]} ${mark.count}`).join("");

function timelineSum() {
  const known = past.gpus.filter((slot) => slot != null);
  if (!known.length) return t`nothing is known yet`;
  const totals = past.uses.map((_, index) => known.reduce((sum, slot) => sum + slot[index], 0)), all = totals.reduce((sum, value) => sum + value, 0);
  const shares = past.uses.map((name, index) => [name, totals[index] / (all || 1)]).filter(([, share]) => share >= 0.005);
  const done = ["notice", "stop", "start"].map((verb) => [verb, past.marks.filter((mark) => mark.verb === verb).reduce((sum, mark) => sum + mark.count, 0)]).filter(([, many]) => many);
  const lacks = past.gpus.slice(past.gpus.findIndex((slot) => slot != null)).filter((slot) => slot == null).length * past.slot_seconds;
  return [listed(shares.map(([name, share]) => t`${percent(share)} ${word(name)}`)), ...done.map(([verb, many]) => count(many, verb)), ...(lacks ? [t`no data for ${span(lacks)}`] : [])].join(" · ");
}

function drawPastTable() {
  const each = HOUR / past.slot_seconds, since = seconds(past.since), rows = [];
  for (let first = 0; first < past.gpus.length; first += each) {
    const slots = past.gpus.slice(first, first + each), known = slots.filter((slot) => slot != null);
    if (!known.length && !rows.length) continue;
    const means = past.uses.map((_, index) => known.length ? (known.reduce((sum, slot) => sum + slot[index], 0) / known.length).toFixed(1) : t`no data`);
    const begin = since + first * past.slot_seconds;
    const done = past.marks.filter((mark) => mark.verb in MARKS && seconds(mark.at) >= begin && seconds(mark.at) < begin + HOUR).map((mark) => `${MARKS[mark.verb]} ${mark.count}`);
    rows.push([clock(begin), ...means, listed(done) || "–"]);
  }
  $("past-table").lastElementChild.replaceChildren(table([t`From`, ...past.uses.map(word), t`Done`], rows.reverse()));
}
$("past-table").ontoggle = () => { if ($("past-table").open && past) drawPastTable(); };

// --- one node ----------------------------------------------------------------------------------------------------
async function drawStrip(id) {
  const told = await ask(`/nodes/${encodeURIComponent(id)}/timeline`).catch((error) => error);
  const place = $("strip");
  if (!place || $("detail").dataset.node !== id) return;
  if (told instanceof Error) {
    place.replaceChildren(el("p", { className: "faint" }, told.message));
    return;
  }
  const known = told.stretches.filter((each) => each.use != null);
  const box = drawn(seconds(told.since), seconds(told.until), known.length ? seconds(known[0].begin) : null);
  const shown = told.stretches.filter((each) => seconds(each.end) > box.from);
  const words = (each) => t`${when(each.begin)} to ${when(each.end)}: ${each.use ? word(each.use) : t`no data`}`;
  const bars = shown.map((each) => {
    const x = Math.max(0, seconds(each.begin) - box.from), end = seconds(each.end) - box.from;
    return svg("path", { class: each.use ?? "gap", d: bar(x, 10, end - x, 20) }, svg("title", {}, words(each)));
  });
  const marks = told.marks.filter((mark) => mark.verb in MARKS && seconds(mark.at) >= box.from).map((mark) => ({ at: seconds(mark.at), verb: mark.verb, words: t`${when(mark.at)} ${MARKS[mark.verb]}: ${mark.why}` }));
  const rows = [...shown.map((each) => [each.begin, t`${when(each.begin)} to ${when(each.end)}`, each.use ? word(each.use) : t`no data`]),
    ...marks.map((mark) => [new Date(mark.at * 1000).toISOString(), clock(mark.at), mark.words.slice(mark.words.indexOf(" ") + 1)])].sort((a, b) => a[0] < b[0] ? 1 : -1);
  place.replaceChildren(
    el("div", { className: "timeline strip" }, picture(box, 30, t`Its use over the last 24 hours`, listed(shown.map(words), "; ") || t`nothing is known`, ...bars, ...markLines(box, marks, 30)), axis(box)),
    el("details", {}, el("summary", {}, t`As a table`), table([t`When`, t`What`], rows.map((row) => row.slice(1)))));
}
