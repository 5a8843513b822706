"""Each setting under mta/report has its effect: which test fails without it."""

from __future__ import annotations

from tests.unit.effects import wrong

READERS = "test_task::test_reports_go_where_the_settings_say"
TESTS = {
    "generate_ndr": "test_task::test_reports_may_be_switched_off",
    "ndr_recip_redirect": READERS,
    "ndr_recips_additional": READERS,
    "announcemta": "test_making::test_a_report_on_a_failure_says_what_the_settings_say",
    "ndr_from": "test_making::test_a_report_on_a_failure_says_what_the_settings_say",
    "ndr_subject": "test_making::test_a_report_on_a_failure_says_what_the_settings_say",
    "ndr_textpart": "test_making::test_a_report_on_a_failure_says_what_the_settings_say",
    "delay_warning": "core/test_schedule::test_the_settings_state_the_schedule",
    "delay_warning@all": "core/test_schedule::test_the_settings_state_the_schedule",
    "attachmsg": "test_task::test_a_big_message_comes_back_in_part",
    "attachmsg@full": "test_task::test_all_of_a_message_comes_back_to_who_asked_for_it",
    "queuecache": "test_task::test_more_bounces_than_fit_into_memory_at_once",
    "audit": "ops/test_audit::test_a_failure_is_one_line_with_its_report",
    "audit@rot": "ops/test_audit::test_the_time_of_the_event_decides_the_file_whenever_it_comes",
    "audit@maxfile": "ops/test_auditfile::test_a_file_that_is_full_is_followed_by_the_next",
}


def test_every_setting_has_a_test_that_is_there() -> None:
    assert wrong("mta/report/", TESTS, "report") == []
