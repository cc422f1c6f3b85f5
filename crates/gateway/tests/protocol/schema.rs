//! Checks frames against the published schema of the protocol.
//!
//! `fixtures/schema.json` holds the definitions that frames of approvals need; `fixtures/README.md` says where they
//! come from.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use holdgate_testkit::v4::{Direction, Line};
use jsonschema::Validator;
use serde_json::{Value, json};

/// Which definition the payload of an answer has to fit.
const ANSWERS: [(&str, &str); 4] = [
    ("connect", "HelloOk"),
    ("approval.get", "ApprovalGetResult"),
    ("approval.resolve", "ApprovalResolveResult"),
    ("approval.history", "ApprovalHistoryResult"),
];

/// Which definition the parameters of a request have to fit that a gateway did.
const REQUESTS: [(&str, &str); 10] = [
    ("connect", "ConnectParams"),
    ("approval.get", "ApprovalGetParams"),
    ("approval.resolve", "ApprovalResolveParams"),
    ("approval.history", "ApprovalHistoryParams"),
    ("exec.approval.get", "ExecApprovalGetParams"),
    ("exec.approval.request", "ExecApprovalRequestParams"),
    ("exec.approval.resolve", "ExecApprovalResolveParams"),
    ("plugin.approval.request", "PluginApprovalRequestParams"),
    ("plugin.approval.resolve", "PluginApprovalResolveParams"),
    ("sessions.messages.subscribe", "SessionsMessagesSubscribeParams"),
];

/// How frames fared, by definition.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many fit.
    pub fit: BTreeMap<&'static str, usize>,
    /// What is wrong with each of those that do not.
    pub unfit: BTreeMap<&'static str, Vec<Vec<String>>>,
}

impl Outcome {
    /// Everything that is wrong somewhere, with the definition that says so.
    pub fn faults(&self) -> BTreeSet<String> {
        let faults = self.unfit.iter().flat_map(|(definition, frames)| {
            frames.iter().flatten().map(move |fault| format!("{definition}: {fault}"))
        });
        faults.collect()
    }
}

/// The published definitions, ready to check with.
pub struct Schema {
    validators: HashMap<&'static str, Validator>,
}

impl Schema {
    /// The definitions of the fixture.
    pub fn published() -> Self {
        let mut schema: Value = serde_json::from_str(include_str!("fixtures/schema.json")).unwrap();
        speak_rust(&mut schema);
        let bodies = ANSWERS.into_iter().chain(REQUESTS).map(|(_, name)| name);
        let frames =
            ["EventFrame", "RequestFrame", "ResponseFrame", "SessionApprovalEvent", "SessionApprovalReplay"];
        let validators = bodies.chain(frames).map(|name| {
            let mut root = schema.clone();
            root["$ref"] = json!(format!("#/definitions/{name}"));
            (name, jsonschema::draft7::new(&root).unwrap())
        });
        Self { validators: validators.collect() }
    }

    /// Checks every frame that a gateway sent: the frame, and the payload where the schema knows it. And every request
    /// that it did: it should not have done what the schema refuses.
    pub fn check(&self, lines: &[Line]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut asked: HashMap<(String, String), Value> = HashMap::new();
        for line in lines {
            let Ok(frame) = serde_json::from_str::<Value>(&line.text) else { continue };
            let id = (line.name.clone(), frame["id"].as_str().unwrap_or_default().to_owned());
            match line.direction {
                Direction::Sent => {
                    asked.insert(id, frame);
                }
                Direction::Received if frame["type"] == "event" => self.event(&frame, &mut outcome),
                Direction::Received => {
                    self.fits("ResponseFrame", &frame, &mut outcome);
                    if let (Some(request), true) = (asked.get(&id), frame["ok"] == true) {
                        self.done(request, &frame["payload"], &mut outcome);
                    }
                }
                Direction::Closed => {}
            }
        }
        outcome
    }

    fn event(&self, frame: &Value, outcome: &mut Outcome) {
        self.fits("EventFrame", frame, outcome);
        if frame["event"] == "session.approval" {
            self.fits("SessionApprovalEvent", &frame["payload"], outcome);
        }
    }

    fn done(&self, request: &Value, payload: &Value, outcome: &mut Outcome) {
        let method = request["method"].as_str().unwrap_or_default();
        self.fits("RequestFrame", request, outcome);
        if let Some((_, definition)) = REQUESTS.into_iter().find(|(name, _)| *name == method) {
            self.fits(definition, &request["params"], outcome);
        }
        if let Some((_, definition)) = ANSWERS.into_iter().find(|(name, _)| *name == method) {
            self.fits(definition, payload, outcome);
        }
        if method == "sessions.messages.subscribe"
            && let Some(replay) = payload.get("approvalReplay")
        {
            self.fits("SessionApprovalReplay", replay, outcome);
        }
    }

    fn fits(&self, definition: &'static str, value: &Value, outcome: &mut Outcome) {
        let errors: Vec<_> = self.validators[definition].iter_errors(value).collect();
        if errors.is_empty() {
            *outcome.fit.entry(definition).or_default() += 1;
        } else {
            let faults = errors.iter().map(|error| format!("{error} at {}", error.instance_path()));
            outcome.unfit.entry(definition).or_default().push(faults.collect());
        }
    }
}

/// The schema's pattern of an id speaks of halves of surrogate pairs, which no Rust text can hold: what is left of it
/// is that `.` and `..` are no ids.
fn speak_rust(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(pattern) = fields.get_mut("pattern")
                && pattern.as_str().is_some_and(|text| text.contains("\\uD800"))
            {
                *pattern = json!("^(?!\\.{1,2}$)[\\s\\S]+$");
            }
            fields.values_mut().for_each(speak_rust);
        }
        Value::Array(items) => items.iter_mut().for_each(speak_rust),
        _ => {}
    }
}

/// What the published schema does not know of hello: recorded, and sent by us as well.
pub const METHOD_IS_UNKNOWN: &str =
    "HelloOk: Additional properties are not allowed ('method' was unexpected) at /auth";

#[test]
fn the_recorded_frames_fit_as_they_did_when_they_were_recorded() {
    let text = include_str!("fixtures/trace-golden-2026.9.6.txt");
    let lines: Vec<Line> = text.lines().filter_map(Line::parse).collect();
    assert_eq!(lines.len(), text.lines().count());
    let outcome = Schema::published().check(&lines);
    let fit = [
        ("ApprovalGetParams", 17),
        ("ApprovalGetResult", 17),
        ("ApprovalHistoryParams", 1),
        ("ApprovalHistoryResult", 1),
        ("ApprovalResolveParams", 17),
        ("ApprovalResolveResult", 21),
        ("ConnectParams", 15),
        ("EventFrame", 78),
        ("ExecApprovalGetParams", 3),
        ("ExecApprovalRequestParams", 44),
        ("ExecApprovalResolveParams", 3),
        ("PluginApprovalRequestParams", 1),
        ("RequestFrame", 114),
        ("ResponseFrame", 172),
        ("SessionApprovalEvent", 6),
        ("SessionApprovalReplay", 2),
        ("SessionsMessagesSubscribeParams", 2),
    ];
    assert_eq!(outcome.fit, BTreeMap::from(fit));
    assert_eq!(outcome.unfit["HelloOk"].len(), 15);
    assert_eq!(outcome.unfit["ApprovalResolveParams"].len(), 4);
    let hello = [
        METHOD_IS_UNKNOWN,
        "HelloOk: Additional properties are not allowed ('cpuBreakdown' was unexpected) at /snapshot/health/eventLoop",
        // The recording has left out what these hold.
        "HelloOk: \"autoEnabled\" is a required property at /snapshot/updateSchedule",
        "HelloOk: \"channel\" is a required property at /snapshot/updateSchedule",
        "HelloOk: \"defaultAgentId\" is a required property at /snapshot/sessionDefaults",
        "HelloOk: \"mainKey\" is a required property at /snapshot/sessionDefaults",
        "HelloOk: \"mainSessionKey\" is a required property at /snapshot/sessionDefaults",
        "HelloOk: \"phase\" is a required property at /snapshot/suspension",
    ];
    // Answers that the recorded gateway took although they are none, and denied.
    let resolve = [
        "ApprovalResolveParams: \"ACCEPT\" is not valid under any of the schemas listed in the 'anyOf' keyword at /decision",
        "ApprovalResolveParams: \"decision\" is a required property at ",
        "ApprovalResolveParams: \"kind\" is a required property at ",
        "ApprovalResolveParams: Additional properties are not allowed ('foo' was unexpected) at ",
    ];
    let faults: BTreeSet<String> = hello.into_iter().chain(resolve).map(str::to_owned).collect();
    assert_eq!(outcome.faults(), faults);
}
