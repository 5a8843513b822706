"""The public benchmark's arithmetic: what the sink counts, and what the tables show."""

from __future__ import annotations

from fractions import Fraction

from tests.bench.peers.account import Result, bars, efficiency, ratios, table
from tests.bench.peers.group import calls
from tests.bench.peers.scenarios import SCENARIOS, STREAMS, Scenario, Stream
from tests.bench.peers.sink import DEFER, OK, REFUSE, Account, verdict

_STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 97.52    0.011450         357        32           fdatasync
  2.48    0.000291         145         2         1 fsync
------ ----------- ----------- --------- --------- ----------------
100.00    0.011741         345        34           total
"""


def figures(rate: float) -> dict[str, float]:
    return {"rate": rate, "cpu_ms": 2.0, "pss_mb": 60.0}


def test_ratios_pair_the_same_rounds() -> None:
    ours = Result({0: figures(300), 1: figures(500), 2: figures(100)})
    theirs = Result({0: figures(100), 1: figures(250)})
    assert ratios(ours, theirs) == [2.0, 3.0]


def test_table_has_a_column_for_each_peer_that_ran() -> None:
    results = {
        "kept-20": {
            "mqcd": Result({0: figures(300), 1: figures(500)}, syncs=0.25),
            "postfix": Result({0: figures(100), 1: figures(250)}),
            "exim": Result(failed="lost or late: 3 of 20"),
        }
    }
    titles = {"kept-20": "kept"}
    assert table(results, titles, ["mqcd", "postfix", "exim", "haraka"]).splitlines() == [
        "| what | mqcd | postfix | exim |",
        "|---|---|---|---|",
        "| kept | 400 (300 to 500), 2.50 times | 175 (100 to 250) | failed: lost or late: 3 of 20 |",
    ]
    costs = table(results, titles, ["mqcd"], "cost").splitlines()
    assert costs[2] == "| kept | 2 ms, 60 MB, 0.25 syncs |"
    assert bars(results, titles) == "kept | 2.0 | 3.0"


def test_efficiency_is_the_gain_of_each_shard() -> None:
    found = {
        "mqcd-1": Result({0: figures(100)}),
        "mqcd-4": Result({0: figures(320)}),
        "postfix": Result({0: figures(50)}),
    }
    assert efficiency(found) == "4 shards 0.80"


def test_strace_summary_counts_all_sync_calls() -> None:
    assert calls(_STRACE) == 34


def test_mix_accepts_80_defers_15_refuses_5_percent() -> None:
    codes = [verdict(number) for number in range(1, 101)]
    assert [codes.count(code) for code in (OK, DEFER, REFUSE)] == [80, 15, 5]
    assert sum(stream.share for stream in SCENARIOS["mix"].streams) == 1


def test_scenarios_fit_the_recipient_names() -> None:
    assert all(len(each.streams) <= STREAMS for each in SCENARIOS.values())


def test_each_stream_gets_its_share() -> None:
    streams = (Stream(1000, Fraction(3, 4)), Stream(2000, Fraction(1, 4)))
    scenario = Scenario(title="", streams=streams, sessions=2, share=Fraction(1, 2))
    assert scenario.counts(80) == [30, 10]
    assert scenario.megabytes(80) == 0.05


def test_account_counts_a_second_copy() -> None:
    account = Account(lambda: None)
    account.begin(3, False)
    for line in (b"RCPT TO:<1s0@a.example>", b"RCPT TO:<1s1@a.example>", b"RCPT TO:<1s0@a.example>"):
        code, key = account.ask(line)
        assert code == OK
        account.take([key])
    found = account.report()
    assert (found["settled"], found["accepted"], found["twice"]) == (2, 2, 1)


def test_account_settles_a_deferred_recipient_once() -> None:
    account = Account(lambda: None)
    account.begin(9, True)
    for _ in range(2):
        assert account.ask(b"RCPT TO:<17s0@mixed.example>")[0] == DEFER
    assert account.ask(b"RCPT TO:<19s0@mixed.example>")[0] == REFUSE
    found = account.report()
    assert (found["settled"], found["deferred"], found["refused"]) == (2, 1, 1)


def test_account_keeps_standing_mail_apart() -> None:
    reached: list[bool] = []
    account = Account(lambda: reached.append(True))
    account.stand(2)
    for number in (1, 2):
        assert account.ask(b"RCPT TO:<%ds0@standing.example>" % number)[0] == DEFER
    assert reached
    assert account.report()["settled"] == 0
