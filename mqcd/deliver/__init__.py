"""Mail out: routing, scheduling, SMTP to next hops, verdicts.

A due recipient: `claiming.loop`, woken by `claiming.wake`, claims it; `placing` finds its hop (`routing`);
`lanes.entering` puts it into a lane; `lanes.scheduling` chooses the next job; `connection.pool` starts it on
a `worker`, whose `attempt` speaks SMTP (`smtp`); `settling` makes the verdict, `recording` hands it to the
store. New mail may go to a worker without work at once (`direct`). Decisions are pure (`claiming.plan`,
`lanes`, `routing`, `smtp`, `verdicts`). A remote refusal is a value that ends in a verdict. Imports config
and core.
"""
