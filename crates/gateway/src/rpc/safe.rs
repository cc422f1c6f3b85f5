//! Texts from outside, made safe to show. Passes on what the domain has for it.

pub(crate) use holdgate_core::presentation::visible as masked;

pub(crate) fn multiline(text: &str) -> String {
    text.replace("\r\n", "\n").split('\n').map(masked).collect::<Vec<_>>().join("\n")
}
