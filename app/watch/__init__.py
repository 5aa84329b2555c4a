"""The watcher: leaves the group for a worker whose process has died, so that others go on at once.

Kafka learns of a death when the member's session times out, the machine knows it in the same moment. The watcher is a
process beside the worker: its child (child.py), or a sidecar that a pod's other container connects to (sidecar.py).
Both read the same lines of JSON from a stream socket; watcher.py is the worker's end.

    worker                                        watcher
      {"worker": name, "process": pid}    ->      who speaks
                                          <-      {"ready": true, "leaves": n}: the coordinator answers
      {"member": id}                      ->      at each join
      {"left": true}                      ->      the group has confirmed a goodbye; nothing to do
      (gone without that)                         LeaveGroup for the member, unless the brake holds

The notice of a death is the end of the socket: the kernel closes it for a process that is gone. Processes that the
worker has forked may hold the socket open, so the child has a pidfd of the worker, too. A worker that is suspended, or
whose loop stands still, is there: its session decides.

A leave names the member id alone, never the static name: a member id belongs to one life of one member, and to the
broker a former one is unknown. A leave for a worker that lives costs a rebalance and no answer: its successors fence
it, and it joins again.

Each leave is one more rebalance. After `MOST` of them within `WITHIN_S` for one worker the watcher leaves it to the
session (brake.py). The worker's name is that of its data directory, where the child keeps the times of its leaves,
since each life of the worker has another child; a sidecar outlives them, and keeps them in memory.
"""
