"""Mail out: routing, scheduling, SMTP to next hops, verdicts.

A due recipient: `service` claims it, `placing` finds its hop (`routing`) and puts it into a lane (`lanes`), a
worker of `connection` takes its job and speaks SMTP (`smtp`), `settling` makes the verdict, `recording` hands
it to the store. New mail may go to a worker without work at once (`direct`). Decisions are pure (`lanes`,
`routing`, `smtp`, `verdicts`). A remote refusal is a value that ends in a verdict. Imports config and core.
"""
