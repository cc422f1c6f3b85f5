//! The reviewer page: what a person sees at `/approve/{id}` and the files that it loads.
//!
//! Owns markup, words and the page's security headers. Owns no route, no cookie and no decision: the HTTP layer chooses
//! the page and sends it, the authority decides. Every function here is pure; agent text enters as text only.

mod card;
mod sign_in;
#[cfg(test)]
mod tests;
mod text;

use holdgate_wire::Approval;
pub use sign_in::{pair_page, sign_in_page, signed_in_page};

use maud::{DOCTYPE, Markup, html};

/// The policy sent with every response of the page and its assets: own files only, no frame, no HTML sink.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// The headers of every response of the page, as lower-case names and values.
///
/// The referrer stays `same-origin`: with `no-referrer` Chrome sends `Origin: null` on the sign-in form's POST, which the
/// origin check refuses.
pub const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("cache-control", "no-store"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// A static file of the page by its name under `/assets/`: content type and body.
pub fn asset(name: &str) -> Option<(&'static str, &'static str)> {
    match name {
        "approve.js" => Some(("text/javascript; charset=utf-8", include_str!("page/approve.js"))),
        "style.css" => Some(("text/css; charset=utf-8", include_str!("page/style.css"))),
        "mark.svg" => Some(("image/svg+xml", include_str!("page/mark.svg"))),
        _ => None,
    }
}

/// The page's path for an approval id: always one segment under `/approve/` of this gateway, whatever the id holds.
/// `base` is what every path of it begins with: empty, or like `/gate`.
pub fn path_of(base: &str, id: &str) -> String {
    let mut path = format!("{base}/approve/");
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

/// The page for a signed-in reviewer when there is no such approval, or none that they may see: the two look alike.
pub fn not_found_page(base: &str, id: &str) -> String {
    let body = html! {
        main id="approval" data-id=(id) data-state="not-found" {
            div.card {
                div.plain {
                    h1 { "Nothing here to review" }
                    p { "There is no approval at this address, or it is not one that you may see." }
                    p.fine { "Open the newest link that you were sent, or list what is waiting in a terminal: "
                        code { "holdgate approvals list" } }
                }
            }
        }
    };
    document(base, "Not found · Holdgate", &html! {}, &body)
}

/// What stands at the gateway's own address: where to go from here. Says nothing of what is waiting.
pub fn front_page(base: &str) -> String {
    let calls = format!("{base}/openapi.json");
    let body = html! {
        main {
            div.card {
                div.plain {
                    h1 { "A Holdgate gateway" }
                    p { "It serves here. To answer a request, open its link: " code { "holdgate exec" }
                        " and agents print it." }
                    p.fine { "List what is waiting in a terminal: " code { "holdgate approvals list" }
                        ". For programs: " a href=(calls) { (calls) } }
                }
            }
        }
    };
    document(base, "Holdgate", &html! {}, &body)
}

/// The page of one approval for a signed-in reviewer. `csrf` is the value that deciding calls must carry in their
/// header; `now_ms` is the authority's time.
pub fn approval_page(base: &str, approval: &Approval, csrf: &str, now_ms: i64) -> String {
    let head = html! {
        meta name="csrf" content=(csrf);
        script type="module" src={ (base) "/assets/approve.js" } {}
    };
    let title = format!("{} · Holdgate", card::status_title(approval));
    document(base, &title, &head, &card::card(approval, now_ms))
}

fn document(base: &str, title: &str, head: &Markup, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                title { (title) }
                link rel="icon" href={ (base) "/assets/mark.svg" } type="image/svg+xml";
                link rel="stylesheet" href={ (base) "/assets/style.css" };
                (head)
            }
            body {
                header.brand {
                    img src={ (base) "/assets/mark.svg" } alt="" width="26" height="26";
                    span { "Holdgate" }
                }
                (body)
            }
        }
    };
    page.into_string()
}
