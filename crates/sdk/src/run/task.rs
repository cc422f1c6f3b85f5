//! The tasks of a team's run: what they are, whether they make a plan, and how reviewers are shown them.
//!
//! Owns their shapes and the checks on a plan. Pure. When a task's turn comes is `board`'s.

use std::collections::{BTreeMap, HashMap, HashSet};

use holdgate_core::limits::NAME_CHARS;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Most tasks of one plan.
pub(crate) const TASKS: usize = 100_000;
/// Longest title and description of a task, in characters.
const TITLE_CHARS: usize = 512;
const DESCRIPTION_CHARS: usize = 16_384;
/// Most entries of a task's metadata.
const METADATA: usize = 16;
/// The longest pause before a task is tried again, in milliseconds.
const PAUSE_MS: f64 = 30_000.0;

/// How soon a task's turn comes among those that could start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// After all others.
    Low,
    /// As usual.
    #[default]
    Normal,
    /// Before most.
    High,
    /// Before all others.
    Critical,
}

/// A task of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskSpec {
    /// Its id, unique within the plan.
    pub id: String,
    /// What it is called.
    pub title: String,
    /// What its agent is asked to do.
    pub description: String,
    /// Whose it is. Of the team's agents in turn when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// The tasks whose output it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// How soon its turn comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// The caller's own notes: up to 16 texts, numbers and truth values. Reviewers see them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// How often it is begun anew after its agent gave up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// The pause before it is first begun anew, in milliseconds. A second when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_delay_ms: Option<u64>,
    /// By how much each further pause is longer, at least 1. Twice as long when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_backoff: Option<f64>,
}

/// Why tasks make no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPlan {
    /// There is nothing to do, or too much.
    #[error("a plan has 1 to {TASKS} tasks; this one has {0}")]
    Size(usize),
    /// A task is not well described.
    #[error("task {id:?}: {what}")]
    Task {
        /// Its id.
        id: String,
        /// What is wrong with it.
        what: String,
    },
    /// A coordinator gave none, not even when it was asked again.
    #[error("the coordinator made no plan: {0}")]
    Coordinator(String),
    /// A plan was written by another version.
    #[error("the plan has version {0}; this program reads version {PLAN_VERSION}")]
    Version(u32),
    /// Tasks wait for each other.
    #[error("the tasks {} wait for each other in a circle", .0.join(" -> "))]
    Circle(Vec<String>),
}

impl TaskSpec {
    /// A task.
    pub fn new(id: impl Into<String>, title: impl Into<String>, description: impl Into<String>) -> Self {
        Self { id: id.into(), title: title.into(), description: description.into(), ..Self::default() }
    }

    /// Gives it to an agent.
    #[must_use]
    pub fn assigned_to(mut self, agent: impl Into<String>) -> Self {
        self.assignee = Some(agent.into());
        self
    }

    /// Puts it after another task, whose output it needs.
    #[must_use]
    pub fn after(mut self, task: impl Into<String>) -> Self {
        self.depends_on.push(task.into());
        self
    }

    /// Says how soon its turn comes.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Says how often it is begun anew.
    #[must_use]
    pub fn retries(mut self, times: u32) -> Self {
        self.max_retries = Some(times);
        self
    }

    /// The pause before attempt `attempt`, the first retry being 1, in milliseconds: at most 30 seconds, before jitter.
    pub(crate) fn pause_ms(&self, attempt: u32) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a pause of 2^52 ms is capped anyway")]
        let first = self.retry_delay_ms.unwrap_or(1_000) as f64;
        let factor = self
            .retry_backoff
            .unwrap_or(2.0)
            .powi(i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX));
        (first * factor).min(PAUSE_MS)
    }

    /// The task as reviewers are shown it, in the keys that its digest is made of.
    pub(crate) fn snapshot(
        &self,
        status: &str,
        result: Option<&str>,
        created_at: &str,
        updated_at: &str,
    ) -> Value {
        let mut shown = json!({
            "id": self.id, "title": self.title, "description": self.description, "status": status,
            "createdAt": created_at, "updatedAt": updated_at,
        });
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                shown[key] = value;
            }
        };
        put("assignee", self.assignee.clone().map(Value::from));
        put("dependsOn", (!self.depends_on.is_empty()).then(|| self.depends_on.clone().into()));
        put("priority", self.priority.map(|priority| json!(priority)));
        put("metadata", (!self.metadata.is_empty()).then(|| self.metadata.clone().into()));
        put("maxRetries", self.max_retries.map(Value::from));
        put("retryDelayMs", self.retry_delay_ms.map(Value::from));
        put("retryBackoff", self.retry_backoff.map(Value::from));
        put("result", result.map(Value::from));
        shown
    }

    fn check(&self) -> Result<(), String> {
        let is_name = |text: &str| {
            !text.trim().is_empty()
                && text.trim() == text
                && text.chars().count() <= NAME_CHARS
                && !text.chars().any(|c| c.is_control() || matches!(c, ':' | ',' | '>'))
        };
        if !is_name(&self.id) {
            return Err(format!(
                "its id is not 1 to {NAME_CHARS} characters without ':', ',', '>' and control characters"
            ));
        }
        if self.title.trim().is_empty() || self.title.chars().count() > TITLE_CHARS {
            return Err(format!("its title is not 1 to {TITLE_CHARS} characters"));
        }
        if self.description.chars().count() > DESCRIPTION_CHARS {
            return Err(format!("its description is longer than {DESCRIPTION_CHARS} characters"));
        }
        let is_scalar = |value: &Value| matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_));
        if self.metadata.len() > METADATA || !self.metadata.values().all(is_scalar) {
            return Err(format!("its metadata is not up to {METADATA} texts, numbers and truth values"));
        }
        if self.retry_backoff.is_some_and(|factor| !factor.is_finite() || factor < 1.0) {
            return Err("its retry backoff is less than 1".to_owned());
        }
        Ok(())
    }
}

/// The version of [`Plan`].
const PLAN_VERSION: u32 = 1;

/// A plan that can be kept, shown and run later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    version: u32,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// Its tasks, each with its agent.
    pub tasks: Vec<TaskSpec>,
}

impl Plan {
    /// A plan of these tasks.
    pub fn new(tasks: Vec<TaskSpec>) -> Self {
        Self { version: PLAN_VERSION, goal: None, tasks }
    }

    pub(crate) fn checked(self) -> Result<Self, InvalidPlan> {
        if self.version == PLAN_VERSION { Ok(self) } else { Err(InvalidPlan::Version(self.version)) }
    }
}

/// Gives every task an agent.
///
/// # Errors
/// Why the tasks make no plan for these agents.
pub(crate) fn assigned(mut tasks: Vec<TaskSpec>, agents: &[&str]) -> Result<Vec<TaskSpec>, InvalidPlan> {
    let mut turn = 0;
    for task in &mut tasks {
        match &task.assignee {
            Some(agent) if agents.contains(&agent.as_str()) => {}
            Some(agent) => {
                let what = format!("the team has no agent {agent:?}");
                return Err(InvalidPlan::Task { id: task.id.clone(), what });
            }
            None => {
                task.assignee = Some(agents[turn % agents.len()].to_owned());
                turn += 1;
            }
        }
    }
    check(&tasks)?;
    Ok(tasks)
}

/// Checks that tasks make a plan.
///
/// # Errors
/// Why they do not.
pub(crate) fn check(tasks: &[TaskSpec]) -> Result<(), InvalidPlan> {
    if !(1..=TASKS).contains(&tasks.len()) {
        return Err(InvalidPlan::Size(tasks.len()));
    }
    let wrong = |task: &TaskSpec, what: String| InvalidPlan::Task { id: task.id.clone(), what };
    let mut ids = HashSet::new();
    for task in tasks {
        task.check().map_err(|what| wrong(task, what))?;
        if !ids.insert(task.id.as_str()) {
            return Err(wrong(task, "another task has its id".to_owned()));
        }
    }
    for task in tasks {
        let mut named = HashSet::new();
        for before in &task.depends_on {
            if !ids.contains(before.as_str()) {
                return Err(wrong(task, format!("there is no task {before:?} for it to come after")));
            }
            if !named.insert(before) {
                return Err(wrong(task, format!("it comes after {before:?} twice")));
            }
        }
    }
    circle(tasks).map_or(Ok(()), |circle| Err(InvalidPlan::Circle(circle)))
}

/// Tasks that wait for each other, if some do.
fn circle(tasks: &[TaskSpec]) -> Option<Vec<String>> {
    let index: HashMap<&str, usize> =
        tasks.iter().enumerate().map(|(at, task)| (task.id.as_str(), at)).collect();
    let mut left: Vec<usize> = tasks.iter().map(|task| task.depends_on.len()).collect();
    let mut after: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, task) in tasks.iter().enumerate() {
        for before in &task.depends_on {
            after.entry(index[before.as_str()]).or_default().push(at);
        }
    }
    let mut free: Vec<usize> = (0..tasks.len()).filter(|&at| left[at] == 0).collect();
    while let Some(at) = free.pop() {
        for &next in after.get(&at).into_iter().flatten() {
            left[next] -= 1;
            if left[next] == 0 {
                free.push(next);
            }
        }
    }
    // Of what is left, each waits for another that is left: going back from any of them comes round.
    let mut at = left.iter().position(|&left| left > 0)?;
    let mut way: Vec<usize> = Vec::new();
    while !way.contains(&at) {
        way.push(at);
        at = tasks[at]
            .depends_on
            .iter()
            .map(|before| index[before.as_str()])
            .find(|&before| left[before] > 0)?;
    }
    let from = way.iter().position(|&seen| seen == at)?;
    Some(way[from..].iter().chain([&at]).map(|&at| tasks[at].id.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, after: &[&str]) -> TaskSpec {
        after.iter().fold(TaskSpec::new(id, id, ""), |task, before| task.after(*before))
    }

    fn wrong(id: &str, what: &str) -> Result<(), InvalidPlan> {
        Err(InvalidPlan::Task { id: id.to_owned(), what: what.to_owned() })
    }

    #[test]
    fn tasks_that_make_no_plan_are_refused_by_name() {
        assert_eq!(check(&[task("a", &[]), task("b", &["a"])]), Ok(()));
        assert_eq!(check(&[]), Err(InvalidPlan::Size(0)));
        assert_eq!(check(&[task("a", &[]), task("a", &[])]), wrong("a", "another task has its id"));
        assert_eq!(check(&[task("a", &["b"])]), wrong("a", "there is no task \"b\" for it to come after"));
        assert_eq!(
            check(&[task("a", &[]), task("b", &["a", "a"])]),
            wrong("b", "it comes after \"a\" twice")
        );
        let ids = |ids: &[&str]| Err(InvalidPlan::Circle(ids.iter().map(|id| (*id).to_owned()).collect()));
        assert_eq!(check(&[task("a", &["a"])]), ids(&["a", "a"]));
        assert_eq!(check(&[task("x", &["a"]), task("a", &["b"]), task("b", &["a"])]), ids(&["a", "b", "a"]));
        for bad in ["", " a", "a:b", "a,b", "a\n"] {
            assert!(check(&[task(bad, &[])]).is_err(), "{bad:?}");
        }
        let mut nested = task("a", &[]);
        nested.metadata.insert("n".to_owned(), json!({}));
        assert!(check(&[nested]).is_err());
    }

    #[test]
    fn who_is_named_must_be_there_and_the_others_take_turns() {
        let plan = vec![task("a", &[]), task("b", &[]).assigned_to("two"), task("c", &[])];
        let owners =
            |tasks: Vec<TaskSpec>| tasks.into_iter().map(|task| task.assignee.unwrap()).collect::<Vec<_>>();
        assert_eq!(
            assigned(plan.clone(), &["one", "two"]).map(owners),
            Ok(vec!["one".into(), "two".into(), "two".into()])
        );
        assert!(assigned(plan, &["one"]).is_err());
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let task = TaskSpec { retry_delay_ms: Some(100), retry_backoff: Some(3.0), ..task("a", &[]) };
        assert_eq!([1, 2, 3, 40].map(|attempt| task.pause_ms(attempt)), [100.0, 300.0, 900.0, PAUSE_MS]);
    }
}
