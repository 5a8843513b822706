"""Mail out: routing, scheduling, SMTP to next hops, verdicts.

A due recipient: `claiming.loop` claims it, `placing` finds its hop (`routing`) and puts it into a lane of
`lanes.scheduling`; `connection.pool` starts its job on a `worker`, whose `attempt` speaks SMTP (`smtp`);
`settling` makes the verdict, `recording` hands it to the store. New mail may go to a worker without work at
once (`direct`). Decisions are pure (`claiming.plan`, `lanes`, `routing`, `smtp`, `verdicts`). A remote
refusal is a value that ends in a verdict. Imports config and core.
"""
