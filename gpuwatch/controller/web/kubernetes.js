// What a Kubernetes cluster tells, its pods that hold GPUs without use, and the workloads whose pods may be ended for it.
// Words and elements are the page's own.
"use strict";

function drawKubernetes() {
  const cluster = fleet.kubernetes;
  $("kubernetes-card").hidden = !cluster;
  if (!cluster) return;
  const waiting = cluster.pending_gpus ? t`, pending pods want ${cluster.pending_gpus} more` : "";
  put($("kubernetes-sum"), t`${cluster.name}: ${cluster.requested_gpus} of ${cluster.gpus} GPUs requested${waiting}`);
  const wrong = [cluster.trouble && t`None of its nodes is stopped: ${cluster.trouble}`, ...cluster.notes].filter(Boolean);
  const items = wrong.map((words) => el("li", {}, el("strong", {}, words)));
  items.push(...fleet.workloads.slice(0, 8).map((each) => el("li", {}, dot(each.activity), " ",
    el("strong", {}, each.cluster ? t`${each.kind} ${each.namespace}/${each.name} of ${each.cluster}` : `${each.kind} ${each.namespace}/${each.name}`), ` ${endWords(each)}`, el("br"),
    el("small", {}, t`${count(each.pods, "pod")} with ${count(each.gpus, "GPU")}, owner ${each.owner ?? t`unknown`}. ${each.why}${each.snooze?.reason ? t` Reason: ${each.snooze.reason}` : ""}`))));
  if (fleet.workloads.length > 8) items.push(el("li", { className: "faint" }, t`and ${fleet.workloads.length - 8} more workloads: gpuwatch status`));
  items.push(...fleet.pods.slice(0, 8).map((pod) => el("li", {}, dot(pod.activity), ` ${pod.cluster ? `${pod.cluster}/` : ""}${pod.namespace}/${pod.name}`,
    t` ${word(pod.activity)} for ${span(pod.held_seconds)}`, pod.usd_per_hour == null ? "" : t`, ${usd(pod.usd_per_hour)}/h`, el("br"),
    el("small", {}, t`${count(pod.gpus, "GPU")} on `, opener(pod.node), t` of ${pod.workload}, owner ${pod.owner ?? t`unknown`}`))));
  if (fleet.pods.length > 8) items.push(el("li", { className: "faint" }, t`and ${fleet.pods.length - 8} more: gpuwatch status`));
  list("kubernetes", items, t`Every pod with GPUs uses them, or has done so within the hour.`);
}

// What becomes of a workload, and when.
function endWords(each) {
  if (each.refused_by.length) return t`stays: the guard refuses (${listed(each.refused_by)})`;
  if (each.snooze && each.action === "hold") return t`kept until ${when(each.snooze.until)} by ${each.snooze.who}`;
  if (!each.ends_at || !each.how) return each.action === "withdraw" ? t`stays: its notice is withdrawn` : t`stays, ${word(each.activity)} for ${span(each.held_seconds)}`;
  const left = (new Date(each.ends_at) - now()) / 1000;
  return left <= 0 ? t`${word(each.how)} now` : t`${word(each.how)} at ${when(each.ends_at)}, in ${span(left)}`;
}
