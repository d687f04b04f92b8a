// What a Kubernetes cluster tells, and its pods that hold GPUs without use. Words and elements are the page's own.
"use strict";

function drawKubernetes() {
  const cluster = fleet.kubernetes;
  $("kubernetes-card").hidden = !cluster;
  if (!cluster) return;
  const waiting = cluster.pending_gpus ? `, pending pods want ${cluster.pending_gpus} more` : "";
  put($("kubernetes-sum"), `${cluster.name}: ${cluster.requested_gpus} of ${cluster.gpus} GPUs requested${waiting}`);
  const wrong = [cluster.trouble && `None of its nodes is stopped: ${cluster.trouble}`, ...cluster.notes].filter(Boolean);
  const items = wrong.map((words) => el("li", {}, el("strong", {}, words)));
  items.push(...fleet.pods.slice(0, 8).map((pod) => el("li", {}, dot(pod.activity), ` ${pod.namespace}/${pod.name}`,
    ` ${pod.activity} for ${span(pod.held_seconds)}`, pod.usd_per_hour == null ? "" : `, ${usd(pod.usd_per_hour)}/h`, el("br"),
    el("small", {}, `${count(pod.gpus, "GPU")} on `, opener(pod.node), ` of ${pod.workload}, owner ${pod.owner ?? "unknown"}`))));
  if (fleet.pods.length > 8) items.push(el("li", { className: "faint" }, `and ${fleet.pods.length - 8} more: gpuwatch status`));
  list("kubernetes", items, "Every pod with GPUs uses them, or has done so within the hour.");
}
