// What a Kubernetes cluster tells, its pods that hold GPUs without use, and the workloads whose pods may be ended for it.
// Words and elements are the page's own.
"use strict";

function drawKubernetes() {
  const cluster = fleet.kubernetes;
  $("kubernetes-card").hidden = !cluster;
  if (!cluster) return;
  const waiting = cluster.pending_gpus ? `, pending pods want ${cluster.pending_gpus} more` : "";
  put($("kubernetes-sum"), `${cluster.name}: ${cluster.requested_gpus} of ${cluster.gpus} GPUs requested${waiting}`);
  const wrong = [cluster.trouble && `None of its nodes is stopped: ${cluster.trouble}`, ...cluster.notes].filter(Boolean);
  const items = wrong.map((words) => el("li", {}, el("strong", {}, words)));
  items.push(...fleet.workloads.slice(0, 8).map((each) => el("li", {}, dot(each.activity), " ",
    el("strong", {}, `${each.kind} ${each.namespace}/${each.name}${each.cluster ? ` of ${each.cluster}` : ""}`), ` ${endWords(each)}`, el("br"),
    el("small", {}, `${count(each.pods, "pod")} with ${count(each.gpus, "GPU")}, owner ${each.owner ?? "unknown"}. ${each.why}${each.snooze?.reason ? ` Reason: ${each.snooze.reason}` : ""}`))));
  if (fleet.workloads.length > 8) items.push(el("li", { className: "faint" }, `and ${fleet.workloads.length - 8} more workloads: gpuwatch status`));
  items.push(...fleet.pods.slice(0, 8).map((pod) => el("li", {}, dot(pod.activity), ` ${pod.cluster ? `${pod.cluster}/` : ""}${pod.namespace}/${pod.name}`,
    ` ${pod.activity} for ${span(pod.held_seconds)}`, pod.usd_per_hour == null ? "" : `, ${usd(pod.usd_per_hour)}/h`, el("br"),
    el("small", {}, `${count(pod.gpus, "GPU")} on `, opener(pod.node), ` of ${pod.workload}, owner ${pod.owner ?? "unknown"}`))));
  if (fleet.pods.length > 8) items.push(el("li", { className: "faint" }, `and ${fleet.pods.length - 8} more: gpuwatch status`));
  list("kubernetes", items, "Every pod with GPUs uses them, or has done so within the hour.");
}

// What becomes of a workload, and when.
function endWords(each) {
  if (each.refused_by.length) return `stays: the guard refuses (${each.refused_by.join(", ")})`;
  if (each.snooze && each.action === "hold") return `kept until ${when(each.snooze.until)} by ${each.snooze.who}`;
  if (!each.ends_at || !each.how) return each.action === "withdraw" ? "stays: its notice is withdrawn" : `stays, ${each.activity} for ${span(each.held_seconds)}`;
  const left = (new Date(each.ends_at) - now()) / 1000;
  return left <= 0 ? `${each.how} now` : `${each.how} at ${when(each.ends_at)}, in ${span(left)}`;
}
