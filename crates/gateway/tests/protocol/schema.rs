//! Checks frames against the published schema of the protocol.
//!
//! `fixtures/schema.json` holds the definitions that frames of approvals need; `fixtures/README.md` says where they
//! come from.

use std::collections::{BTreeMap, HashMap};

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

/// How frames fared, by definition.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many fit.
    pub fit: BTreeMap<&'static str, usize>,
    /// What is wrong with those that do not.
    pub unfit: BTreeMap<&'static str, Vec<String>>,
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
        let names = ANSWERS.map(|(_, name)| name);
        let frames = ["EventFrame", "ResponseFrame", "SessionApprovalEvent", "SessionApprovalReplay"];
        let validators = names.into_iter().chain(frames).map(|name| {
            let mut root = schema.clone();
            root["$ref"] = json!(format!("#/definitions/{name}"));
            (name, jsonschema::draft7::new(&root).unwrap())
        });
        Self { validators: validators.collect() }
    }

    /// Checks every frame that a gateway sent: the frame, and the payload where the schema knows it.
    pub fn check(&self, lines: &[Line]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut asked: HashMap<(String, String), String> = HashMap::new();
        for line in lines {
            let Ok(frame) = serde_json::from_str::<Value>(&line.text) else { continue };
            let id = (line.name.clone(), frame["id"].as_str().unwrap_or_default().to_owned());
            match line.direction {
                Direction::Sent => {
                    if let Some(method) = frame["method"].as_str() {
                        asked.insert(id, method.to_owned());
                    }
                }
                Direction::Received if frame["type"] == "event" => self.event(&frame, &mut outcome),
                Direction::Received => {
                    self.fits("ResponseFrame", &frame, &mut outcome);
                    if let (Some(method), true) = (asked.get(&id), frame["ok"] == true) {
                        self.answer(method, &frame["payload"], &mut outcome);
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

    fn answer(&self, method: &str, payload: &Value, outcome: &mut Outcome) {
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
            let told = errors.iter().map(|error| format!("{error} at {}", error.instance_path()));
            outcome.unfit.entry(definition).or_default().push(told.collect::<Vec<_>>().join("; "));
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

#[test]
fn the_recorded_frames_fit_as_they_did_when_they_were_recorded() {
    let text = include_str!("fixtures/trace-golden-2026.9.6.txt");
    let lines: Vec<Line> = text.lines().filter_map(Line::parse).collect();
    assert_eq!(lines.len(), text.lines().count());
    let outcome = Schema::published().check(&lines);
    println!("{:?} {:?}", outcome.fit, outcome.unfit.keys());
}
