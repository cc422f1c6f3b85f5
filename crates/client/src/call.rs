//! One HTTP exchange. Sorts what comes back into an answer, a "no", or nothing known.

use std::error::Error as _;
use std::time::Duration;

use holdgate_authority::Error;
use holdgate_wire::Problem;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::endpoint::InvalidEndpoint;

/// How long connecting may take: the gateway is on this machine.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take that does not wait for a person.
const ANSWER: Duration = Duration::from_secs(10);

/// Speaks HTTP to one gateway with one token, or without.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    client: reqwest::Client,
    base: Url,
    /// None before there is a credential.
    authorization: Option<HeaderValue>,
}

/// One request.
pub(crate) struct Call<'a> {
    method: Method,
    path: &'a [&'a str],
    query: Vec<(&'static str, String)>,
    key: Option<&'a str>,
    body: Option<Vec<u8>>,
    longest: Duration,
}

impl<'a> Call<'a> {
    pub(crate) fn get(path: &'a [&'a str]) -> Self {
        Self { method: Method::GET, path, query: Vec::new(), key: None, body: None, longest: ANSWER }
    }

    pub(crate) fn post<T: Serialize>(path: &'a [&'a str], body: &T) -> Result<Self, Error> {
        let body = serde_json::to_vec(body).map_err(|e| {
            Error::new(
                holdgate_wire::Code::InvalidRequest,
                format!("the request cannot be written as JSON: {e}"),
            )
        })?;
        Ok(Self { method: Method::POST, body: Some(body), ..Self::get(path) })
    }

    pub(crate) fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    pub(crate) fn idempotency_key(mut self, key: Option<&'a str>) -> Self {
        self.key = key;
        self
    }

    /// Lets the gateway take `wait` longer than an answer may take by itself.
    pub(crate) fn waiting(mut self, wait: Duration) -> Self {
        self.longest = ANSWER + wait;
        self
    }
}

impl Http {
    pub(crate) fn new(base: Url, authorization: Option<HeaderValue>) -> Result<Self, InvalidEndpoint> {
        // No redirect and no proxy: the token goes to the named gateway or nowhere.
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .build()
            .map_err(|e| InvalidEndpoint::Client(e.to_string()))?;
        Ok(Self { client, base, authorization })
    }

    /// Where the gateway is sought, without a trailing slash.
    pub(crate) fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Sends one request; answers the status and the decoded body of a success.
    ///
    /// # Errors
    /// `Problem` is the gateway's own "no". `Unreachable` is everything else: whether the call was done is not known.
    pub(crate) async fn send<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<(StatusCode, T), Error> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            // What the gateway's URL has of a path is where all of it lies.
            segments.pop_if_empty().extend(call.path);
        }
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&call.query);
        }
        let mut request = self.client.request(call.method.clone(), url).timeout(call.longest);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(key) = call.key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = &call.body {
            request = request.header("content-type", "application/json").body(body.clone());
        }
        let response = request.send().await.map_err(|e| self.lost(&e))?;
        let status = response.status();
        let body = response.bytes().await.map_err(|e| self.lost(&e))?;
        if status.is_success() {
            let answer = serde_json::from_slice(&body).map_err(|e| {
                self.unreachable(format!("its answer does not read as one of a gateway: {e}"))
            })?;
            return Ok((status, answer));
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(problem.into()),
            Err(_) => Err(self.unreachable(format!(
                "what answers there is not a gateway: it said HTTP {}",
                status.as_u16()
            ))),
        }
    }

    /// Nothing is known of the call.
    pub(crate) fn unreachable(&self, why: impl Into<String>) -> Error {
        Error::Unreachable { url: self.url().to_owned(), why: why.into() }
    }

    fn lost(&self, error: &reqwest::Error) -> Error {
        if error.is_timeout() && !error.is_connect() {
            return self.unreachable("it did not answer in time");
        }
        // The innermost cause is the plain one: connection refused, reset, closed.
        let mut why: &dyn std::error::Error = error;
        while let Some(cause) = why.source() {
            why = cause;
        }
        let why = if error.source().is_none() { "the call failed".to_owned() } else { why.to_string() };
        self.unreachable(why)
    }
}
