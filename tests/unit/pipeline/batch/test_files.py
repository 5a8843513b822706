"""Which files of recipients a revision reads, replaces and leaves, by their names alone."""

from __future__ import annotations

from mqcd.pipeline.batch.files import RecipientFiles, plan_revision
from mqcd.pipeline.store.layout import AGED, DONE, OPEN, incoming

TABLE = "/t/recipients"
OLD = {
    name: f"{TABLE}/day=2026-08-{day}/{state}{number}.parquet"
    for number, (name, day, state) in enumerate(
        [("done 17", 17, DONE), ("aged 17", 17, AGED), ("done 18", 18, DONE)]
    )
}
MADE = {
    f"{state}{day}": f"/t/_staging/1/{incoming('recipients', f'2026-08-{day}', state)}/x.parquet"
    for day, state in ((17, OPEN), (17, DONE), (18, AGED), (18, DONE))
}
FILES = RecipientFiles(committed=list(OLD.values()), staged=list(MADE.values()))
PLAN = plan_revision(FILES, {"2026-08-17"})


def test_strangers_are_looked_for_in_the_other_files_of_their_days() -> None:
    assert PLAN.fresh == RecipientFiles(staged=[MADE["open-17"], MADE["aged-18"]])
    assert PLAN.finished == RecipientFiles(
        committed=[OLD["done 17"], OLD["aged 17"]], staged=[MADE["done-17"]]
    )


def test_touched_and_fresh_files_are_replaced() -> None:
    touched = PLAN.finished.where({OLD["done 17"], MADE["done-17"]}.__contains__)
    replaced = PLAN.replaced(touched)
    assert replaced.committed == [OLD["done 17"]]
    assert replaced.staged == [MADE["done-17"], MADE["open-17"], MADE["aged-18"]]
    left = FILES.without(replaced)
    assert left == RecipientFiles(committed=[OLD["aged 17"], OLD["done 18"]], staged=[MADE["done-18"]])


def test_nothing_is_replaced_where_no_file_is_touched() -> None:
    assert not PLAN.replaced(RecipientFiles())
