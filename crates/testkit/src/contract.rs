//! What every store promises, as tests that know nothing of the database behind it.
//!
//! A backend instantiates them all with [`store_contract!`](crate::store_contract). What only one database can
//! show (its files, its damage) is tested beside that backend.

#![expect(clippy::unwrap_used, reason = "these are tests, in a library so that every backend can run them")]

use std::sync::Arc;

use async_trait::async_trait;
use holdgate_store::{Store, StoreError};

use crate::ManualClock;

mod stage;

use stage::{
    LIFE_MS, Stage, approval, claim, draft, draft_in, drain, duplicate, entry, hand_in, hash, open,
    principal, refusal, refused, reviewers, sound, touched, vote,
};

pub mod administration;
pub mod admission;
pub mod chosen;
pub mod credentials;
pub mod devices;
pub mod ended;
pub mod leases;
pub mod lists;
pub mod notices;
pub mod races;
pub mod records;
pub mod requests;
pub mod reviewing;
pub mod runs;
pub mod sessions;
pub mod time;

/// One database that can be opened, dropped and opened again.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Opens it. The store of the opening before has been dropped.
    async fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store>;

    /// Keeps the opened store from writing until what is answered is dropped. What is asked of it meanwhile waits.
    async fn hold(&self) -> Box<dyn Send>;
}

/// Instantiates every promise as a test against the [`Backend`] that `$backend` makes.
#[macro_export]
macro_rules! store_contract {
    ($backend:expr) => {
        $crate::store_contract!(@each $backend,
            administration::only_an_administrator_changes_who_may_act,
            administration::an_issued_token_is_one_identity,
            administration::a_rotated_token_ends_the_earlier_one_and_its_sign_ins,
            administration::a_revoked_identity_is_nobody,
            administration::every_change_of_who_may_act_is_written_down,
            admission::as_many_may_be_pending_as_the_caps_say,
            admission::an_append_opens_no_more_than_the_caps_say,
            admission::a_freeze_stops_what_is_new_and_nothing_else,
            admission::an_agent_is_frozen_alone,
            admission::only_an_administrator_freezes,
            admission::a_flood_is_refused_and_holds_nobody_up,
            chosen::a_chosen_id_is_opaque,
            chosen::a_chosen_id_is_given_once,
            chosen::no_id_is_anothers_reference,
            chosen::a_request_is_found_by_its_id_and_by_its_reference,
            credentials::a_new_credential_replaces_the_earlier_one,
            credentials::a_page_session_is_a_reviewers_and_lapses,
            credentials::a_page_session_ends_with_the_credential_that_opened_it,
            credentials::an_identity_without_a_credential_can_do_nothing,
            credentials::a_credential_that_another_identity_has_is_refused,
            devices::a_pairing_code_is_used_once,
            devices::a_pairing_code_lapses,
            devices::a_device_keeps_its_four_newest_credentials,
            devices::letting_a_device_in_leaves_a_paired_one_as_it_is,
            devices::a_revoked_device_comes_back_with_a_code_only,
            ended::history_is_in_the_order_of_the_ends,
            ended::pages_of_history_stay_in_place_while_more_ends,
            ended::what_ended_long_ago_is_removed_and_its_facts_stay,
            ended::what_is_still_open_is_not_removed,
            ended::a_name_is_not_given_again_when_its_record_is_gone,
            leases::an_epoch_that_is_not_renewed_lapses,
            leases::a_renewed_epoch_lives_on,
            leases::an_epoch_is_started_once,
            leases::another_cannot_renew_or_use_an_epoch,
            leases::a_starting_gateway_ends_its_own_earlier_epoch_only,
            leases::a_starting_gateway_spares_the_living_and_revives_nobody,
            leases::a_starting_gateway_spares_no_lease_that_was_taken_without_one,
            leases::a_second_start_in_one_opening_revives_nobody,
            leases::a_claim_needs_its_live_epoch,
            leases::a_claim_whose_holder_is_gone_becomes_unknown_and_a_late_receipt_replaces_that,
            lists::a_list_is_newest_first_and_can_be_narrowed,
            lists::pages_neither_repeat_nor_miss_while_others_insert,
            lists::a_list_of_much_text_ends_early_and_goes_on,
            lists::a_prefix_is_taken_literally,
            lists::what_is_pending_is_counted_by_kind,
            notices::a_change_is_told_after_it_is_durable,
            notices::each_change_is_told_once_and_in_order,
            notices::nothing_is_told_of_what_did_not_happen,
            notices::who_missed_notices_reads_the_same_in_the_facts,
            notices::a_changed_identity_is_told,
            races::allow_and_deny_at_once_have_one_winner_and_every_loser_is_told,
            races::many_claims_at_once_have_one_winner,
            races::two_processes_that_want_one_run_have_one_winner,
            races::many_requests_at_once_are_all_kept,
            races::a_claim_and_a_revocation_at_once_have_one_winner,
            races::ten_people_answer_a_hundred_requests_at_once,
            records::every_field_of_a_request_is_kept,
            records::every_end_is_kept,
            requests::a_request_is_kept_as_it_was_opened,
            requests::the_same_request_again_is_the_same_record,
            requests::a_key_names_one_body_of_one_identity,
            requests::what_waits_for_a_live_process_keeps_no_content,
            requests::an_allow_is_claimed_once_and_settled_once,
            requests::an_agent_never_decides,
            requests::another_agent_sees_nothing,
            requests::a_stale_digest_changes_nothing,
            requests::a_withdrawn_request_cannot_be_answered,
            requests::everything_is_there_after_reopening,
            reviewing::two_devices_of_a_person_count_once,
            reviewing::the_vote_that_completes_it_ends_it_in_the_same_commit,
            reviewing::an_allow_may_become_a_deny_while_it_is_pending,
            reviewing::a_device_that_is_revoked_meanwhile_does_not_answer,
            reviewing::a_group_is_who_belongs_to_it_then,
            reviewing::a_connection_does_no_more_than_its_scopes,
            reviewing::a_list_of_reviewers_outranks_who_asked,
            reviewing::a_revoked_allow_is_not_spent,
            reviewing::a_runtime_resolves_within_its_range,
            runs::a_run_is_created_once,
            runs::a_journal_keeps_its_order_and_its_place,
            runs::a_page_of_a_journal_is_bounded_in_bytes,
            runs::a_stale_fence_can_do_nothing,
            runs::a_lapsed_lease_lets_the_next_holder_in,
            runs::an_append_and_its_requests_are_one,
            runs::a_refused_append_writes_nothing,
            runs::the_same_request_twice_in_an_append_is_one,
            runs::an_ended_run_takes_no_more,
            runs::another_owner_finds_no_run,
            runs::a_request_of_a_run_needs_its_fence,
            runs::an_aborted_run_ends_what_waits_behind_it,
            runs::a_run_calls_off_its_own_requests_only,
            sessions::an_audience_is_computed_once_and_stays,
            sessions::a_session_is_described_by_who_did_first,
            sessions::a_sessions_stream_shows_what_is_pending,
            time::a_request_ends_exactly_at_its_deadline,
            time::what_time_decided_is_written_down_by_who_comes_next,
            time::a_clock_set_back_revives_nothing,
            time::a_clock_set_forward_ends_things_for_good,
            time::a_sweep_is_bounded_and_complete,
            time::the_next_instant_is_known,
        );
    };
    (@each $backend:expr, $($module:ident::$name:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let backend = $backend;
                $crate::contract::$module::$name(&backend).await;
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    /// A promise that is written but not listed would never be kept.
    #[test]
    fn every_promise_is_listed() {
        let list = include_str!("contract.rs");
        let modules = [
            ("administration", include_str!("contract/administration.rs")),
            ("admission", include_str!("contract/admission.rs")),
            ("chosen", include_str!("contract/chosen.rs")),
            ("credentials", include_str!("contract/credentials.rs")),
            ("devices", include_str!("contract/devices.rs")),
            ("ended", include_str!("contract/ended.rs")),
            ("leases", include_str!("contract/leases.rs")),
            ("lists", include_str!("contract/lists.rs")),
            ("notices", include_str!("contract/notices.rs")),
            ("races", include_str!("contract/races.rs")),
            ("records", include_str!("contract/records.rs")),
            ("requests", include_str!("contract/requests.rs")),
            ("reviewing", include_str!("contract/reviewing.rs")),
            ("runs", include_str!("contract/runs.rs")),
            ("sessions", include_str!("contract/sessions.rs")),
            ("time", include_str!("contract/time.rs")),
        ];
        let mut promises = 0;
        for (module, text) in modules {
            assert!(list.contains(&format!("\npub mod {module};")));
            for line in text.lines().filter_map(|line| line.strip_prefix("pub async fn ")) {
                let name = line.split('(').next().unwrap();
                assert!(list.contains(&format!(" {module}::{name},")), "{module}::{name}");
                promises += 1;
            }
        }
        assert!(promises > 90, "{promises}");
    }
}
