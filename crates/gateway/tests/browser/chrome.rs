//! Debian's Chromium, driven through its own driver.
//!
//! Owns both processes and what happens where they are not installed. Knows nothing of Holdgate.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

const CHROMIUM: &str = "/usr/bin/chromium";
const DRIVER: &str = "/usr/bin/chromedriver";

/// A window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// For file names.
    pub name: &'static str,
    pub width: u32,
    pub height: u32,
    /// Touch, and a phone's idea of a viewport.
    pub is_phone: bool,
    pub is_dark: bool,
}

/// A small phone.
pub const PHONE: Window = Window { name: "phone", width: 360, height: 740, is_phone: true, is_dark: false };
/// A laptop.
pub const DESKTOP: Window =
    Window { name: "desktop", width: 1280, height: 900, is_phone: false, is_dark: false };

/// Whether the browser is installed. Where it is not, says so, or fails if everything is required.
#[expect(clippy::disallowed_methods, reason = "a test run is told by its environment what it must not skip")]
pub fn is_installed(test: &str) -> bool {
    let missing = [CHROMIUM, DRIVER].into_iter().find(|path| !Path::new(path).exists());
    let Some(missing) = missing else { return true };
    let is_required = std::env::var_os("HOLDGATE_TEST_REQUIRE").is_some_and(|value| value == "all");
    assert!(!is_required, "{test} needs {missing} (Debian: chromium, chromium-driver)");
    // Straight to the stream: what a passing test prints is not shown.
    let _ = writeln!(std::io::stderr(), "skipped {test}: {missing} is not installed");
    false
}

/// One browser with a profile of its own. Both processes end with it.
pub struct Chrome {
    /// Drives it.
    pub client: Client,
    browser: Option<Pid>,
    driver: Child,
    _profile: TempDir,
}

impl Chrome {
    /// Starts it.
    pub async fn start(window: Window) -> Self {
        let (driver, port) = start_driver();
        let profile = tempfile::tempdir().expect("a temporary directory can be made");
        let capabilities = json!({
            "browserName": "chrome",
            // The certificates of tests are signed by nobody.
            "acceptInsecureCerts": true,
            "goog:chromeOptions": options(window, profile.path()),
        });
        let Value::Object(capabilities) = capabilities else {
            unreachable!("a JSON object was written above")
        };
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("Chromium starts");
        let browser = client.capabilities().and_then(|told| told.get("goog:processID"));
        let browser = browser.and_then(Value::as_i64).and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        Self { client, browser, driver, _profile: profile }
    }
}

impl Drop for Chrome {
    fn drop(&mut self) {
        // Either may have ended by itself.
        if let Some(browser) = self.browser {
            let _ = kill_process(browser, Signal::KILL);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn options(window: Window, profile: &Path) -> Value {
    let mut args = vec![
        "--headless=new".to_owned(),
        "--no-sandbox".to_owned(),
        "--disable-gpu".to_owned(),
        "--disable-quic".to_owned(),
        "--no-first-run".to_owned(),
        "--disable-background-networking".to_owned(),
        "--disable-component-update".to_owned(),
        "--disable-sync".to_owned(),
        format!("--user-data-dir={}", profile.display()),
        format!("--window-size={},{}", window.width, window.height),
    ];
    if window.is_dark {
        args.push("--blink-settings=preferredColorScheme=0".to_owned());
    }
    let mut options = json!({ "binary": CHROMIUM, "args": args });
    if window.is_phone {
        options["mobileEmulation"] = json!({ "deviceMetrics": {
            "width": window.width, "height": window.height, "pixelRatio": 2.0, "mobile": true, "touch": true,
        }});
    }
    options
}

/// The driver, and the port that it chose. It looks for a free one on two addresses and gives up when it is taken on
/// one of them meanwhile, which happens when several start at once.
fn start_driver() -> (Child, u16) {
    (0..10).find_map(|_| try_start_driver()).expect("chromedriver finds a port")
}

fn try_start_driver() -> Option<(Child, u16)> {
    let mut driver = Command::new(DRIVER)
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromedriver starts");
    let out = driver.stdout.take().expect("its output was piped");
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);
    let Some(port) = lines.find_map(|line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    }) else {
        driver.wait().expect("a driver that said its last word ends");
        return None;
    };
    // Goes on reading, so that the driver never waits for a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}
