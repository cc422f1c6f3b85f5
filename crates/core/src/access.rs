//! What an identity may do to one record. The only place that says so, for every method, list and event.
//!
//! Owns the record rules. What a kind of identity may do at all is `principal`'s; whether the moment is right is
//! `approval`'s.

use crate::approval::Approval;
use crate::principal::{Principal, PrincipalKind, Scopes};

/// What one identity may do to one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Nothing: for this identity the record does not exist.
    None,
    /// Answer it without reading it.
    Resolve,
    /// Read it, wait for it, claim and settle it, call it off: it asked.
    Request,
    /// Read and answer it.
    Review,
}

impl Access {
    /// Whether the record may be read.
    pub fn may_read(self) -> bool {
        matches!(self, Access::Request | Access::Review)
    }

    /// Whether the record may be answered.
    pub fn may_decide(self) -> bool {
        matches!(self, Access::Resolve | Access::Review)
    }
}

/// What `by` may do to `approval`. In order: an administrator reviews everything; an explicit list of reviewers is
/// final; without one the person who asked reviews their own request, as long as they can end it alone; what nobody's
/// device asked for, every approvals device reviews. Being in the audience gives nothing.
pub fn access(approval: &Approval, by: &Principal) -> Access {
    let asked = by.id == approval.requester.id;
    let as_requester = if asked && by.may_request() { Access::Request } else { Access::None };
    match by.kind {
        PrincipalKind::Authority => Access::Review,
        PrincipalKind::Agent => as_requester,
        PrincipalKind::Runtime if asked => as_requester,
        PrincipalKind::Runtime => {
            let in_range = by.range.as_ref().is_none_or(|agent| *agent == approval.requester.id);
            if in_range && by.scopes.contains(Scopes::REQUEST) { Access::Resolve } else { Access::None }
        }
        PrincipalKind::Administrator | PrincipalKind::Device if !by.may_review() => as_requester,
        PrincipalKind::Administrator | PrincipalKind::Device => {
            if by.is_admin() || is_reviewer(approval, by) { Access::Review } else { as_requester }
        }
    }
}

fn is_reviewer(approval: &Approval, by: &Principal) -> bool {
    let requirement = &approval.requirement;
    if !requirement.reviewers.is_empty() {
        return requirement.admits(by);
    }
    match &approval.requester.person {
        // Whom nobody else could help: one allow is enough, and it may be the requester's own.
        Some(person) if requirement.approvals == 1 && requirement.requester_may_decide => {
            by.person.as_ref() == Some(person)
        }
        Some(_) | None => true,
    }
}
