//! OpenTelemetry export: the spans of requests and calls, and one of each approval from its request to its end.
//!
//! Owns the way from `tracing` to OTLP. What is exported is what those who record it name in `holdgate::span` and
//! `holdgate::transition`: routes, methods, kinds and outcomes. No id, no content and no other log line leaves.
//!
//! Where it goes is said by OpenTelemetry's standard environment variables, which its SDK reads. A collector that is
//! slow or down costs spans, never time: they wait in a bounded queue for a thread of their own.

mod layer;

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;

pub use layer::Export;

/// What the exporter calls this program, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` says otherwise.
const SERVICE_NAME: &str = "holdgate";
/// How long the end of the process may be delayed by spans that have not been sent.
const FLUSH: Duration = Duration::from_secs(2);

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error)]
#[error("spans cannot be exported: {0}")]
pub struct Unexportable(#[from] ExporterBuildError);

/// What was started. Dropped, it sends what is left, for at most two seconds.
#[derive(Debug)]
pub struct Telemetry {
    provider: SdkTracerProvider,
}

impl Telemetry {
    /// Starts to export as the environment says. Nothing is connected to before the first spans are sent.
    ///
    /// # Errors
    /// The endpoint or the compression that the environment names cannot be used.
    pub fn start() -> Result<Self, Unexportable> {
        let exporter = SpanExporter::builder().with_http().build()?;
        // The environment comes after the default and wins.
        let name = opentelemetry::KeyValue::new("service.name", SERVICE_NAME);
        let said = Resource::builder().build();
        let resource = Resource::builder_empty().with_attribute(name);
        let resource = said
            .iter()
            // The SDK's own word for a service without a name.
            .filter(|(_, value)| !value.as_str().starts_with("unknown_service"))
            .fold(resource, |resource, (key, value)| {
                resource.with_attribute(opentelemetry::KeyValue::new(key.clone(), value.clone()))
            });
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.build())
            .with_batch_exporter(exporter)
            .build();
        Ok(Self { provider })
    }

    /// What turns recorded spans into exported ones. To be registered with the subscriber, behind [`Export::filter`].
    pub fn layer(&self) -> Export {
        Export::new(self.provider.tracer(SERVICE_NAME))
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        // What cannot be sent in time is lost: the process ends all the same.
        let _ = self.provider.shutdown_with_timeout(FLUSH);
    }
}
