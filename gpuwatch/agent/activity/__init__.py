"""PURE: from what the driver shows to what the machine is doing.

Rules, all of them:

1. Any busy evidence makes a GPU busy, and any busy GPU or busy evidence of the host makes its node busy. There are no
   weights. Power is busy only above what the GPU draws at rest (`rest_power`).
2. Any doubt (a reading missing, a GPU down, a signal of the host that failed, a gap, a clock jump) makes it unknown,
   unless something else is busy.
3. Memory or a process held while nothing computes is parked; full "utilization" at idle power without arithmetic and
   memory traffic, for `stalled_timeout`, is stalled. Memory that no process holds, by a complete list, is nobody's and
   does not park. Only a GPU that is neither is idle.
4. Time counts on the monotonic clock, between two good samples that say the same, at most `max_gap` apart. A change
   starts it again from zero; doubt stops it, and doubt longer than `forget_after` starts it again from zero. A visit
   (`loops`) and a heavy run of hum (`days`) stop the node's.
5. Duplicate and out-of-order samples change nothing.
6. A GPU in MIG mode may be unable to report its instances' activity (before Hopper), or have no instance. It is idle
   only if nothing can run on it: every instance lists its processes and there is no process, no instance holds memory,
   and the GPU's power is that of rest.
7. A process of the machine's own (a health check, a display server) neither parks a GPU nor makes it busy (`holders`).
8. While every GPU that has processes of people is stalled, the CPU time of GPU processes does not make the node busy:
   it is the spinning of what waits. All other evidence of the host does.
9. A node's state is the first of busy, unknown, stalled, parked, occupied, idle that any part of it has. Occupied
   (somebody's process is alive and does nothing) is said by the host's evidence, never by a GPU's; it is listed with a
   stalled or parked node, too.
"""

from gpuwatch.agent.activity.fold import fold
from gpuwatch.agent.activity.memory import GpuMemory, Judgement, Memory, Sample, Track
from gpuwatch.agent.activity.settings import ActivityRules

__all__ = ["ActivityRules", "GpuMemory", "Judgement", "Memory", "Sample", "Track", "fold"]
