//! The sign-in page: a pairing code or a token.

use maud::{Markup, html};

use super::{document, path_of};

/// The sign-in page of an approval, the same whether that approval exists or not. `problem` says what went wrong with
/// the last attempt.
pub fn sign_in_page(base: &str, id: &str, problem: Option<&str>) -> String {
    page(base, id, "Sign in to review", &path_of(base, id), problem)
}

/// The same without an approval: for a device that is paired before there is one.
pub fn pair_page(base: &str, problem: Option<&str>) -> String {
    page(base, "", "Sign in", &format!("{base}/sign-in"), problem)
}

/// What stands there for who is signed in.
pub fn signed_in_page(base: &str, who: &str) -> String {
    let body = html! {
        main {
            div.card {
                div.plain {
                    h1 { "You are signed in" }
                    p { "Here you review as " b #who { (who) } "." }
                    p.fine { "To answer a request, open its link." }
                }
            }
        }
    };
    document(base, "Signed in · Holdgate", &html! {}, &body)
}

fn page(base: &str, id: &str, title: &str, next: &str, problem: Option<&str>) -> String {
    let body = html! {
        main id="approval" data-id=(id) data-state="sign-in" {
            div.card {
                div.plain {
                    h1 { (title) }
                    @if let Some(problem) = problem {
                        p.problem role="alert" { (problem) }
                    }
                    (by_code(base, next))
                    (by_token(base, next))
                }
            }
        }
    };
    document(base, "Sign in · Holdgate", &html! {}, &body)
}

fn by_code(base: &str, next: &str) -> Markup {
    html! {
        p {
            "Pair this browser: run " code { "holdgate pair" } " on the machine of the gateway and type the code that it "
            "shows. This browser then stays signed in for 30 days, unless it is revoked."
        }
        form method="post" action={ (base) "/sign-in" } {
            input type="hidden" name="next" value=(next);
            div.field {
                label for="code" { "Pairing code" }
                input #code type="text" name="code" required autofocus autocomplete="one-time-code"
                    autocapitalize="characters" spellcheck="false" maxlength="32" placeholder="7K2MD-0QXR9";
            }
            div.field {
                label for="device" { "Name of this device (optional)" }
                input #device type="text" name="device" autocomplete="off" spellcheck="false" maxlength="64";
            }
            button.go #pair type="submit" { "Pair this browser" }
        }
    }
}

fn by_token(base: &str, next: &str) -> Markup {
    html! {
        p {
            "Or paste a token. The operator’s is in the file " code { "operator.token" }
            " in Holdgate’s home directory on the machine that runs this gateway."
        }
        form method="post" action={ (base) "/sign-in" } {
            input type="hidden" name="next" value=(next);
            div.field {
                label for="token" { "Token" }
                input #token type="password" name="token" required autocomplete="off"
                    autocapitalize="none" spellcheck="false";
            }
            button.go #sign-in type="submit" { "Sign in" }
        }
    }
}
