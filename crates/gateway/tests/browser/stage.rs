//! One gateway, one line to it and one browser, for one story.

use std::path::PathBuf;
use std::time::Duration;

use fantoccini::{Client, Locator};
use holdgate_testkit::gateway::{Persona, TestGateway};
use serde_json::{Value, json};

use crate::chrome::{Chrome, Window, is_installed};
use crate::proxy::Proxy;

/// How long anything may take before a story counts as failed.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(30);

/// Everything that a story needs.
pub struct Stage {
    /// The browser's driver.
    pub page: Client,
    /// The line between the browser and the gateway.
    pub proxy: Proxy,
    gateway: Option<TestGateway>,
    window: Window,
    chrome: Chrome,
}

/// Plays a story, or says that the browser is not installed.
pub async fn story(name: &str, window: Window, play: impl AsyncFnOnce(&mut Stage)) {
    if !is_installed(name) {
        return;
    }
    let gateway = TestGateway::start().await;
    let proxy = Proxy::before(gateway.url.trim_start_matches("http://").to_owned()).await;
    let chrome = Chrome::start(window).await;
    let mut stage = Stage { page: chrome.client.clone(), proxy, gateway: Some(gateway), window, chrome };
    play(&mut stage).await;
    let Stage { page, gateway, chrome, .. } = stage;
    drop(chrome);
    drop(page);
    if let Some(gateway) = gateway {
        gateway.stop().await;
    }
}

impl Stage {
    /// The gateway.
    pub fn gateway(&self) -> &TestGateway {
        self.gateway.as_ref().expect("it runs between restarts")
    }

    /// Stops the gateway and starts it again at the same address.
    pub async fn restart_gateway(&mut self) {
        let gateway = self.gateway.take().expect("it runs between restarts");
        self.gateway = Some(gateway.restart().await);
    }

    /// Asks for permission as the agent, with this request body; answers the record.
    pub async fn ask(&self, request: Value) -> Value {
        let agent = self.gateway().by(Persona::Agent);
        let reply = agent.post("/v1/approvals", request).await;
        assert_eq!(reply.status, 201, "{}", reply.text);
        reply.json()
    }

    /// Asks for permission to run a harmless command.
    pub async fn ask_simply(&self) -> Value {
        let content = json!({ "argv": ["git", "push", "origin", "v1.4.0"] });
        self.ask(json!({ "kind": "exec", "content": content })).await
    }

    /// The record as the gateway has it.
    pub async fn record(&self, id: &str) -> Value {
        let reviewer = self.gateway().by(Persona::Reviewer);
        reviewer.get(&format!("/v1/approvals/{id}")).await.json()
    }

    /// Claims an allow and reports success, as the agent.
    pub async fn execute(&self, record: &Value, detail: &str) {
        self.claim(record).await;
        let receipt = json!({ "claimId": "claim-1", "outcome": "succeeded", "detail": detail });
        self.call(record, "receipt", receipt).await;
    }

    /// Claims an allow, as the agent.
    pub async fn claim(&self, record: &Value) {
        let claim = json!({ "claimId": "claim-1", "digest": record["digest"] });
        self.call(record, "claim", claim).await;
    }

    /// Makes a call on a record, as the agent.
    pub async fn call(&self, record: &Value, call: &str, body: Value) {
        let agent = self.gateway().by(Persona::Agent);
        let path = format!("/v1/approvals/{}/{call}", id(record));
        let reply = agent.post(&path, body).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
    }

    /// Answers a record as the other reviewer, past the page.
    pub async fn decide_elsewhere(&self, record: &Value, decision: &str) {
        let other = self.gateway().by(Persona::OtherReviewer);
        let digest = record["digest"].as_str().expect("a record has a digest");
        let reply = other.decide(id(record), digest, decision).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
    }

    /// Opens the page of an approval id.
    pub async fn open(&self, id: &str) {
        let url = format!("{}/approve/{id}", self.proxy.url);
        self.page.goto(&url).await.expect("the page opens");
    }

    /// Fills in the sign-in form and sends it.
    pub async fn sign_in(&self, token: &str) {
        self.type_into("#token", token).await;
        self.click("#sign-in").await;
    }

    /// Opens the page of a record as a reviewer who signs in on the way.
    pub async fn review(&self, record: &Value) {
        self.open(id(record)).await;
        self.sign_in(Persona::Reviewer.name()).await;
    }

    /// The page's state.
    pub async fn state(&self) -> String {
        self.attr("data-state").await
    }

    /// An attribute of `<main>`, empty where it has none.
    pub async fn attr(&self, name: &str) -> String {
        let script = "return document.getElementById('approval')?.getAttribute(arguments[0]) ?? ''";
        let value = self.page.execute(script, vec![json!(name)]).await;
        // Between two pages there is nobody to ask.
        value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Waits until the page is in this state.
    pub async fn until(&self, state: &str) {
        self.until_attr("data-state", state).await;
    }

    /// Waits until an attribute of `<main>` has this value.
    pub async fn until_attr(&self, name: &str, value: &str) {
        let waiting = async {
            while self.attr(name).await != value {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!(
                "{name} is {:?}, not {value:?}; the page says: {}",
                self.attr(name).await,
                self.text("body").await
            );
        }
    }

    /// Waits until an expression is true on the page.
    pub async fn until_true(&self, expression: &str) {
        let waiting = async {
            while self.value(expression).await != json!(true) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("not so: {expression}; the page says: {}", self.text("body").await);
        }
    }

    /// What an expression is on the page.
    pub async fn value(&self, expression: &str) -> Value {
        let script = format!("return ({expression})");
        self.page.execute(&script, Vec::new()).await.expect("the page can be asked")
    }

    /// What an element says.
    pub async fn text(&self, css: &str) -> String {
        let element = self.page.find(Locator::Css(css)).await.expect("the element is there");
        element.text().await.expect("it has text")
    }

    /// Whether an element can be pressed.
    pub async fn is_enabled(&self, css: &str) -> bool {
        let element = self.page.find(Locator::Css(css)).await.expect("the element is there");
        element.is_enabled().await.expect("it can be asked")
    }

    /// Presses an element as a person would.
    pub async fn click(&self, css: &str) {
        let element = self.page.find(Locator::Css(css)).await.expect("the element is there");
        element.click().await.expect("it can be pressed");
    }

    /// Types as a person would.
    pub async fn type_into(&self, css: &str, text: &str) {
        let element = self.page.find(Locator::Css(css)).await.expect("the element is there");
        element.send_keys(text).await.expect("it can be typed into");
    }

    /// Scrolls the end of the action into view and waits until it may be approved.
    pub async fn read_to_the_end(&self) {
        self.value("document.getElementById('action-end').scrollIntoView({ block: 'center' }) ?? null").await;
        self.until_true("!document.getElementById('allow-once').disabled").await;
    }

    /// Keeps a picture of the window for people to look at, and checks that nothing sticks out of it sideways.
    pub async fn picture(&self, name: &str) {
        let sideways =
            self.value("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
        assert_eq!(sideways, json!(0), "{name} scrolls sideways");
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
        std::fs::create_dir_all(&directory).expect("the directory can be made");
        let tone = if self.window.is_dark { "-dark" } else { "" };
        let file = directory.join(format!("{name}-{}{tone}.png", self.window.name));
        let picture = self.page.screenshot().await.expect("the browser takes a picture");
        std::fs::write(file, picture).expect("the picture can be written");
    }
}

/// A record's id.
pub fn id(record: &Value) -> &str {
    record["id"].as_str().expect("a record has an id")
}
