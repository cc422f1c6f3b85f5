//! The subscriber's layer: spans of `holdgate::span` become spans, and an end that `holdgate::transition` tells becomes
//! the span of its approval.
//!
//! Owns which fields leave this machine: a closed list.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, Span};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{self, Layer};
use tracing_subscriber::registry::LookupSpan;

const SPAN: &str = "holdgate::span";
const TRANSITION: &str = "holdgate::transition";
const TRACEPARENT: &str = "traceparent";

/// The states of an approval that are no end.
const NO_END: [&str; 2] = ["pending", "revoked"];

/// Turns recorded spans into exported ones.
#[derive(Debug)]
pub struct Export {
    tracer: SdkTracer,
}

impl Export {
    pub(crate) fn new(tracer: SdkTracer) -> Self {
        Self { tracer }
    }

    /// What this layer is to be shown. Everything else is for logs.
    pub fn filter() -> Targets {
        Targets::new().with_target(SPAN, Level::TRACE).with_target(TRANSITION, Level::INFO)
    }

    /// The span of a request over HTTP or of a call over a WebSocket.
    fn begin(&self, transport: &str, fields: &Fields) -> Span {
        let method = fields.text("method");
        let name =
            fields.texts.get("route").map_or_else(|| method.to_owned(), |route| format!("{method} {route}"));
        let attributes = match transport {
            "http" => vec![
                KeyValue::new("http.request.method", method.to_owned()),
                KeyValue::new("http.route", fields.text("route").to_owned()),
            ],
            _ => vec![KeyValue::new("rpc.method", method.to_owned())],
        };
        // A trace that somebody else began goes on here. What cannot be read begins a new one.
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &fields.texts);
        let span = self.tracer.span_builder(name).with_kind(SpanKind::Server).with_attributes(attributes);
        span.start_with_context(&self.tracer, &parent)
    }

    /// The span of an approval that has ended, from its request to its end by the authority's clock.
    fn ended(&self, fields: &Fields) {
        let (Some(at), Some(latency)) = (fields.ms("at_ms"), fields.ms("latency_ms")) else { return };
        let end = SystemTime::UNIX_EPOCH + at;
        let attributes = ["kind", "status", "reason"]
            .map(|name| KeyValue::new(format!("holdgate.approval.{name}"), fields.text(name).to_owned()));
        let mut span = self
            .tracer
            .span_builder("approval")
            .with_start_time(end.checked_sub(latency).unwrap_or(end))
            .with_attributes(attributes)
            .start_with_context(&self.tracer, &Context::new());
        span.end_with_timestamp(end);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Export {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: layer::Context<'_, S>) {
        let metadata = attributes.metadata();
        let Some(recorded) = context.span(id).filter(|_| metadata.target() == SPAN) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        recorded.extensions_mut().insert(self.begin(metadata.name(), &fields));
        recorded.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: layer::Context<'_, S>) {
        let Some(recorded) = context.span(id) else { return };
        if let Some(fields) = recorded.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
        if event.metadata().target() != TRANSITION {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        if !NO_END.contains(&fields.text("status")) {
            self.ended(&fields);
        }
    }

    fn on_close(&self, id: Id, context: layer::Context<'_, S>) {
        let Some(recorded) = context.span(&id) else { return };
        let mut extensions = recorded.extensions_mut();
        let (Some(mut span), Some(fields)) = (extensions.remove::<Span>(), extensions.remove::<Fields>())
        else {
            return;
        };
        if let Some(status) = fields.numbers.get("status") {
            span.set_attribute(KeyValue::new("http.response.status_code", *status));
            if *status >= 500 {
                span.set_status(Status::error(""));
            }
        }
        if let Some(outcome) = fields.texts.get("outcome") {
            span.set_attribute(KeyValue::new("holdgate.outcome", outcome.clone()));
        }
        span.end();
    }
}

/// The fields that leave, and those that time and place a span.
#[derive(Default)]
struct Fields {
    texts: HashMap<String, String>,
    numbers: HashMap<&'static str, i64>,
}

impl Fields {
    fn text(&self, name: &str) -> &str {
        self.texts.get(name).map_or("", String::as_str)
    }

    /// Milliseconds; those before the epoch are none.
    fn ms(&self, name: &str) -> Option<Duration> {
        self.numbers.get(name).and_then(|ms| u64::try_from(*ms).ok()).map(Duration::from_millis)
    }
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        if matches!(field.name(), "at_ms" | "latency_ms" | "status") {
            self.numbers.insert(field.name(), value);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record_i64(field, i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if matches!(field.name(), "method" | "route" | "outcome" | "kind" | "status" | "reason" | TRACEPARENT)
        {
            self.texts.insert(field.name().to_owned(), value.to_owned());
        }
    }

    /// What is not written as a plain text is on no list.
    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}
