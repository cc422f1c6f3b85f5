//! What the client does when answers are late, lost, cut short, or of something else.

use std::time::Duration;

use holdgate_authority::{Authority as _, Error};
use holdgate_client::Remote;
use holdgate_core::requirement::Decision;
use holdgate_wire::request::SettledOutcome;
use holdgate_wire::{AppendEvents, Code, CreateApproval, Decide, LeaseRun, MakeClaim, RunBinding, Settle};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::scripted::{Act, DIGEST, ID, Scripted, approval, problem};

/// Enough for a few quick attempts.
const PATIENCE: Duration = Duration::from_secs(2);

fn client(server: &Scripted) -> Remote {
    Remote::new(&server.url, "hga_token").unwrap().with_patience(PATIENCE)
}

fn impatient(server: &Scripted) -> Remote {
    client(server).with_patience(Duration::ZERO)
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> Option<Code> {
    result.unwrap_err().code()
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn request() -> CreateApproval {
    serde_json::from_value(json!({"kind": "exec", "content": {"argv": ["ls"]}})).unwrap()
}

fn decide(decision: Decision) -> Decide {
    Decide { decision, digest: DIGEST.to_owned(), reason: None }
}

#[tokio::test]
async fn a_read_survives_whatever_passes() {
    let ok = Act::Answer(200, approval("pending", None));
    let server = Scripted::play([
        Act::Drop,
        Act::Half,
        Act::Text(502, "<html>bad gateway"),
        problem("unavailable", None),
        ok,
    ])
    .await;
    assert_eq!(client(&server).get(ID).await.unwrap().id, ID);
    assert_eq!(server.lines(), vec![format!("GET /v1/approvals/{ID}"); 5]);
}

#[tokio::test]
async fn a_call_that_nobody_answers_is_unreachable_and_says_where() {
    let server = Scripted::play([]).await;
    let error = impatient(&server).get(ID).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { url, .. } if *url == server.url), "{error}");
}

#[tokio::test]
async fn an_answer_about_another_record_is_no_answer() {
    let server = Scripted::play([Act::Answer(200, approval("allowed", Some("allow-once")))]).await;
    let other = "apr_ffffffffffffffffffffffffffffffff";
    assert!(matches!(impatient(&server).get(other).await, Err(Error::Unreachable { .. })));
}

#[tokio::test]
async fn a_page_of_something_else_is_no_gateway() {
    let server = Scripted::play([Act::Text(200, "<html>hello"), Act::Text(404, "nope")]).await;
    for _ in 0..2 {
        assert!(matches!(impatient(&server).get(ID).await, Err(Error::Unreachable { .. })));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Scripted::play([Act::Answer(200, approval("allowed", Some("allow-once")))]).await;
    let server = Scripted::play([Act::Redirect(format!("{}/v1/approvals/{ID}", elsewhere.url))]).await;
    assert!(matches!(impatient(&server).get(ID).await, Err(Error::Unreachable { .. })));
    assert!(elsewhere.seen().is_empty(), "the token went elsewhere");
}

#[tokio::test]
async fn the_token_travels_in_its_header_only() {
    let server = Scripted::play([Act::Answer(200, approval("pending", None))]).await;
    client(&server).get(ID).await.unwrap();
    let seen = server.seen().remove(0);
    assert!(seen.headers.contains(&"authorization: bearer hga_token".to_owned()), "{seen:?}");
    assert!(!seen.line.contains("hga_token"));
}

#[tokio::test]
async fn an_id_that_would_leave_its_path_names_nothing() {
    let server = Scripted::play([Act::Answer(404, json!({})), Act::Answer(404, json!({}))]).await;
    for id in ["", ".", ".."] {
        assert_eq!(code(client(&server).get(id).await), Some(Code::NotFound), "{id:?}");
    }
    assert!(server.seen().is_empty());
    let _ = impatient(&server).get("../runs/x?y#z").await;
    assert_eq!(server.lines(), ["GET /v1/approvals/..%2Fruns%2Fx%3Fy%23z"]);
}

#[tokio::test]
async fn a_request_is_asked_again_under_its_key_and_never_without_one() {
    let server = Scripted::play([Act::Drop, Act::Answer(200, approval("pending", None))]).await;
    let created = client(&server).create(request(), Some("key-1")).await.unwrap();
    assert!(!created.is_new);
    assert!(server.seen().iter().all(|seen| seen.headers.contains(&"idempotency-key: key-1".to_owned())));

    let server = Scripted::play([Act::Drop, Act::Answer(201, approval("pending", None))]).await;
    assert!(matches!(client(&server).create(request(), None).await, Err(Error::Unreachable { .. })));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_record_of_another_action_is_no_answer_to_a_request() {
    let server = Scripted::play([Act::Answer(201, approval("pending", None))]).await;
    let named =
        CreateApproval { boundary: Some("here".to_owned()), epoch: Some("epo_1".to_owned()), ..request() };
    assert!(matches!(impatient(&server).create(named, Some("k")).await, Err(Error::Unreachable { .. })));
}

#[tokio::test]
async fn a_lost_claim_is_made_again_under_the_same_name() {
    let claim = || MakeClaim { claim_id: "claim-1".to_owned(), digest: DIGEST.to_owned(), fence: None };
    let answer = |id: &str| Act::Answer(200, json!({"claim": {"claimId": id, "atMs": 5}}));
    let server = Scripted::play([Act::Drop, answer("claim-1")]).await;
    assert_eq!(client(&server).claim(ID, claim()).await.unwrap().claim_id, "claim-1");
    assert!(server.seen().iter().all(|seen| seen.body["claimId"] == "claim-1"));

    let server = Scripted::play([answer("claim-2")]).await;
    assert!(
        matches!(impatient(&server).claim(ID, claim()).await, Err(Error::Unreachable { .. })),
        "another's claim"
    );

    let server = Scripted::play([problem("already_claimed", None), answer("claim-1")]).await;
    assert_eq!(
        code(client(&server).claim(ID, claim()).await),
        Some(Code::AlreadyClaimed),
        "a refusal is final"
    );
    assert_eq!(server.left(), 1);
}

#[tokio::test]
async fn a_lost_receipt_is_given_again() {
    let server = Scripted::play([Act::Half, Act::Answer(200, approval("allowed", Some("allow-once")))]).await;
    let settle = Settle { claim_id: "c".to_owned(), outcome: SettledOutcome::Succeeded, detail: None };
    client(&server).settle(ID, settle).await.unwrap();
    assert_eq!(server.left(), 0);
}

mod a_decision {
    use super::*;

    fn decided(status: &str, decision: &str) -> Act {
        Act::Answer(200, json!({"applied": true, "approval": approval(status, Some(decision))}))
    }

    #[tokio::test]
    async fn is_read_back_when_its_acknowledgement_is_lost() {
        let stands = Act::Answer(200, approval("allowed", Some("allow-once")));
        let server = Scripted::play([Act::Drop, stands]).await;
        let decided = client(&server).decide(ID, decide(Decision::AllowOnce)).await.unwrap();
        assert!(!decided.applied, "who gave the answer that stands is not known");
        let expected = [format!("POST /v1/approvals/{ID}/decision"), format!("GET /v1/approvals/{ID}")];
        assert_eq!(server.lines(), expected, "it is not sent again");
    }

    #[tokio::test]
    async fn that_lost_to_another_is_told_who_won() {
        let server = Scripted::play([Act::Drop, Act::Answer(200, approval("denied", Some("deny")))]).await;
        let error = client(&server).decide(ID, decide(Decision::AllowOnce)).await.unwrap_err();
        let Error::Problem(problem) = error else { panic!("{error}") };
        assert_eq!(
            (problem.code, problem.approval.unwrap().decision),
            (Code::AlreadyDecided, Some(Decision::Deny))
        );
        for (status, code) in [("expired", Code::Expired), ("cancelled", Code::Cancelled)] {
            let server = Scripted::play([Act::Drop, Act::Answer(200, approval(status, Some("deny")))]).await;
            let lost = client(&server).decide(ID, decide(Decision::AllowOnce)).await;
            assert_eq!(super::code(lost), Some(code), "{status}");
        }
    }

    #[tokio::test]
    async fn that_did_not_arrive_is_sent_again() {
        let pending = Act::Answer(200, approval("pending", None));
        let server = Scripted::play([Act::Drop, pending, decided("allowed", "allow-once")]).await;
        let decided = client(&server).decide(ID, decide(Decision::AllowOnce)).await.unwrap();
        assert!(decided.applied);
        assert_eq!(server.left(), 0);
    }

    #[tokio::test]
    async fn is_acknowledged_only_by_itself() {
        let mut other_id = approval("allowed", Some("allow-once"));
        other_id["id"] = "apr_ffffffffffffffffffffffffffffffff".into();
        let mut other_digest = approval("allowed", Some("allow-once"));
        other_digest["digest"] = "0".repeat(64).into();
        let wrong = [approval("denied", Some("deny")), approval("pending", None), other_id, other_digest];
        for acknowledged in wrong {
            let answer = Act::Answer(200, json!({"applied": true, "approval": acknowledged}));
            let server = Scripted::play([answer, Act::Answer(200, approval("denied", Some("deny")))]).await;
            let result = client(&server).decide(ID, decide(Decision::AllowOnce)).await;
            assert_eq!(
                super::code(result),
                Some(Code::AlreadyDecided),
                "the record is asked, not the acknowledgement"
            );
        }
    }

    #[tokio::test]
    async fn whose_read_back_fails_is_not_known() {
        let server = Scripted::play([Act::Drop, problem("not_found", None)]).await;
        let error = client(&server).decide(ID, decide(Decision::AllowOnce)).await.unwrap_err();
        assert!(matches!(&error, Error::Unreachable { why, .. } if why.contains("is not known")), "{error}");
    }
}

mod an_append {
    use super::*;

    const EVENTS: [&str; 2] = [r#"{"a":1}"#, r#"{"b":2}"#];

    fn sent() -> AppendEvents {
        AppendEvents {
            fence: 3,
            after: 4,
            events: EVENTS.into_iter().map(raw).collect(),
            state: Some("suspended".to_owned()),
            approvals: Vec::new(),
        }
    }

    fn run(fence: u64, last_seq: u64) -> Value {
        json!({"id": "run_1", "agent": "a", "state": "suspended", "fence": fence, "leaseMs": 10_000,
            "lastSeq": last_seq, "createdAtMs": 1})
    }

    fn read_back(events: &[&str], fence: u64) -> [Act; 2] {
        let items: Vec<Value> = events
            .iter()
            .zip(5..)
            .map(|(event, seq)| json!({"seq": seq, "atMs": 1, "event": serde_json::from_str::<Value>(event).unwrap()}))
            .collect();
        let last_seq = 4 + events.len() as u64;
        [
            Act::Answer(200, json!({"items": items, "lastSeq": last_seq})),
            Act::Answer(200, run(fence, last_seq)),
        ]
    }

    fn appended() -> Act {
        Act::Answer(200, json!({"run": run(3, 6), "approvals": []}))
    }

    async fn play(acts: Vec<Act>) -> (Result<u64, Option<Code>>, usize) {
        let server = Scripted::play(acts).await;
        let result = client(&server).append("run_1", sent()).await;
        let posts = server.lines().iter().filter(|line| line.starts_with("POST")).count();
        (result.map(|appended| appended.run.last_seq).map_err(|error| error.code()), posts)
    }

    #[tokio::test]
    async fn that_is_in_the_journal_has_succeeded() {
        let acts = [vec![Act::Drop], read_back(&EVENTS, 3).to_vec()].concat();
        assert_eq!(play(acts).await, (Ok(6), 1));
    }

    #[tokio::test]
    async fn that_fills_several_pages_is_read_back_to_its_end() {
        let page = |seq: u64, event: &str| {
            let event: Value = serde_json::from_str(event).unwrap();
            Act::Answer(200, json!({"items": [{"seq": seq, "atMs": 1, "event": event}], "lastSeq": 6}))
        };
        let found =
            |second| vec![Act::Drop, page(5, EVENTS[0]), page(6, second), Act::Answer(200, run(3, 6))];
        assert_eq!(play(found(EVENTS[1])).await, (Ok(6), 1));
        assert_eq!(play(found(EVENTS[0])).await, (Err(Some(Code::JournalMoved)), 1));
    }

    #[tokio::test]
    async fn that_is_not_in_the_journal_is_sent_again() {
        let acts = [vec![Act::Drop], read_back(&[], 3).to_vec(), vec![appended()]].concat();
        assert_eq!(play(acts).await, (Ok(6), 2));
    }

    #[tokio::test]
    async fn that_arrived_late_is_found_behind_the_refusal_of_its_repetition() {
        let lost_twice =
            [vec![Act::Drop], read_back(&[], 3).to_vec(), vec![problem("journal_moved", None)]].concat();
        let acts = [lost_twice, read_back(&EVENTS, 3).to_vec()].concat();
        assert_eq!(play(acts).await, (Ok(6), 2));
    }

    #[tokio::test]
    async fn that_meets_other_events_has_not_happened() {
        for others in [&[EVENTS[0]][..], &[EVENTS[1], EVENTS[0]], &[EVENTS[0], EVENTS[1], EVENTS[0]]] {
            let acts = [vec![Act::Drop], read_back(others, 3).to_vec()].concat();
            assert_eq!(play(acts).await, (Err(Some(Code::JournalMoved)), 1), "{others:?}");
        }
    }

    #[tokio::test]
    async fn of_a_holder_that_was_replaced_is_not_its_own() {
        let acts = [vec![Act::Half], read_back(&EVENTS, 4).to_vec()].concat();
        assert_eq!(
            play(acts).await,
            (Err(Some(Code::FenceLapsed)), 1),
            "equal events may be the next holder's"
        );
    }

    #[tokio::test]
    async fn that_was_refused_at_once_stays_refused() {
        assert_eq!(play(vec![problem("journal_moved", None)]).await, (Err(Some(Code::JournalMoved)), 1));
    }

    #[tokio::test]
    async fn answers_with_what_it_opened_by_reading_it() {
        let opened = CreateApproval {
            boundary: Some("t:c".to_owned()),
            run: Some(RunBinding { id: "run_1".to_owned(), fence: 3 }),
            ..request()
        };
        let content = holdgate_core::Canonical::parse(opened.content.get()).unwrap();
        let action = holdgate_core::Action::freeze(holdgate_core::Kind::Exec, "t:c", content).unwrap();
        let id = action.id("run_1").to_string();
        let mut record = approval("pending", None);
        record["id"] = id.clone().into();
        let acts = [vec![Act::Drop], read_back(&EVENTS, 3).to_vec(), vec![Act::Answer(200, record)]].concat();
        let server = Scripted::play(acts).await;
        let sent = AppendEvents { approvals: vec![opened], ..sent() };
        let appended = client(&server).append("run_1", sent).await.unwrap();
        assert_eq!(appended.approvals.iter().map(|a| a.id.as_str()).collect::<Vec<_>>(), [id.as_str()]);
        assert_eq!(server.lines().last().unwrap(), &format!("GET /v1/approvals/{id}"));
    }
}

mod taking_a_run {
    use super::*;

    fn run(fence: u64) -> Act {
        Act::Answer(
            200,
            json!({"id": "run_1", "agent": "a", "state": "running", "fence": fence, "leaseMs": 10_000, "lastSeq": 0,
                "createdAtMs": 1}),
        )
    }

    #[tokio::test]
    async fn waits_for_a_holder_that_may_be_ourselves() {
        let server = Scripted::play([Act::Drop, problem("run_held", Some(300)), run(2)]).await;
        assert_eq!(client(&server).lease_run("run_1", LeaseRun::default()).await.unwrap().fence, 2);
    }

    #[tokio::test]
    async fn gives_up_on_a_holder_that_lives() {
        let held = || problem("run_held", Some(200));
        let server = Scripted::play([Act::Drop, held(), held(), run(2)]).await;
        assert_eq!(code(client(&server).lease_run("run_1", LeaseRun::default()).await), Some(Code::RunHeld));
        assert_eq!(server.left(), 1, "it asks once more and no oftener");
    }

    #[tokio::test]
    async fn is_refused_at_once_when_nothing_was_lost() {
        let server = Scripted::play([problem("run_held", Some(50)), run(2)]).await;
        assert_eq!(code(client(&server).lease_run("run_1", LeaseRun::default()).await), Some(Code::RunHeld));
        assert_eq!(server.left(), 1);
    }

    #[tokio::test]
    async fn is_kept_by_asking_again() {
        let server = Scripted::play([Act::Drop, run(2)]).await;
        let keep = LeaseRun { fence: Some(2), release: false };
        assert_eq!(client(&server).lease_run("run_1", keep).await.unwrap().fence, 2);
    }
}

mod a_wait {
    use super::*;

    #[tokio::test]
    async fn outlives_a_gateway_that_goes_away_and_comes_back() {
        let stopping = Act::Answer(202, approval("pending", None));
        let ended = Act::Answer(200, approval("denied", Some("deny")));
        let server = Scripted::play([stopping, Act::Drop, Act::Drop, Act::Text(503, ""), ended]).await;
        let waited = impatient(&server).wait(ID, Duration::from_secs(600)).await.unwrap();
        assert!(waited.is_terminal());
        assert_eq!(server.lines()[0], format!("GET /v1/approvals/{ID}/wait?timeoutMs=60000"));
    }

    #[tokio::test]
    async fn ends_when_its_time_is_up() {
        let pending = || Act::Answer(202, approval("pending", None));
        let server = Scripted::play([pending(), pending(), pending(), pending(), pending(), pending()]).await;
        let waited = client(&server).wait(ID, Duration::from_millis(150)).await.unwrap();
        assert!(!waited.is_terminal());
    }

    #[tokio::test]
    async fn ends_at_once_when_it_may_not_know() {
        let server = Scripted::play([problem("not_found", None)]).await;
        assert_eq!(code(client(&server).wait(ID, Duration::from_secs(600)).await), Some(Code::NotFound));
    }
}
