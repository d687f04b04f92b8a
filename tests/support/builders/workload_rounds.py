"""Rounds with workloads of a cluster in them, for pages and boards that show each metric."""

from dataclasses import replace

from gpuwatch.controller.context import Act, Round
from gpuwatch.model.decision import Answer, Outcome, Reason, Review, Status, Step, Verb
from gpuwatch.model.promise import Notice, Promise


def with_a_workload(done: Round, pool: str = "default") -> Round:
    """That round, had it ended one workload of the cluster, while another has a notice, and a rule refused a third."""
    ids = [f"kube:k/team/Deployment/{name}" for name in ("ended", "told", "kept")]
    reason = Reason(code="expired", sentence="Its GPU pod has been idle for 1d.")
    ended = {"how": "scale-to-zero", "gpus": "1.0"}
    steps = [Step(node_id=ids[0], verb=Verb.RELEASE, reason=reason, change="", arguments=ended)]
    steps.append(Step(node_id=ids[2], verb=Verb.NOTICE, reason=reason, change=""))
    no = Answer(rule="stale", refused=True, sentence="The verdict of gpu-1 is stale.", remedy="Wait.")
    reviews = [Review(pool=pool, step=steps[0], answers=()), Review(pool=pool, step=steps[1], answers=(no,))]
    outcome = Outcome(key="k", status=Status.SETTLED, at=done.observation.now, detail="")
    promise = Promise(action="scale-to-zero", pool=pool, stop_at=done.observation.now, grace_seconds=600.0)
    notice = Notice(node_id=ids[1], key="n", at=done.observation.now, promise=promise)
    ledger = replace(done.observation.ledger, notices=(*done.observation.ledger.notices, notice))
    return replace(
        done,
        observation=replace(done.observation, ledger=ledger),
        reviews=(*done.reviews, *reviews),
        acts=(*done.acts, Act(review=reviews[0], outcome=outcome)),
    )
