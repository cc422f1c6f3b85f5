//! Tables of plan and next step.
