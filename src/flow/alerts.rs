//! Alerts on their way to the webhook: what happened, as JSON, queued for the one who posts it.

use super::Gateway;
use crate::limit::{Alert, Kind, Measure, Now, Rule};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Alerts that nobody has taken yet. A burst is a handful; more is a webhook's owner asleep.
const QUEUE_MAX: usize = 1_000;

/// One alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The same for the same owner, period and threshold; of other alerts its moment is a part.
    pub id: String,
    /// What is posted.
    pub body: String,
    /// It is remembered over restarts, so that it is given once.
    pub once: bool,
}

/// The queue.
#[derive(Debug, Default)]
pub struct Alerts(Mutex<VecDeque<Notice>>);

impl Alerts {
    /// Queues one; the oldest makes way where nobody takes any.
    pub fn push(&self, notice: Notice) {
        let mut queue = self.0.lock();
        if queue.len() >= QUEUE_MAX {
            queue.pop_front();
        }
        queue.push_back(notice);
    }

    /// Alerts that wait, and how many may.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.0.lock().len(), QUEUE_MAX)
    }

    /// Takes the oldest.
    pub fn take(&self) -> Option<Notice> {
        self.0.lock().pop_front()
    }
}

impl Gateway {
    /// A budget has reached its threshold: a metric, a line, and the webhook where there is one.
    pub fn alert(&self, alert: &Alert) {
        let rule = &alert.rule;
        let (scope, name) = (rule.owner.scope.as_str(), &*rule.owner.name);
        let threshold = threshold(rule);
        let per = rule.per().unwrap_or_default();
        self.metrics.limits.alerted([scope, name, per, &threshold.to_string()]);
        let measure = rule.measure().unwrap_or(Measure::Money);
        let (used, amount) = (measure.show(alert.used), measure.show(rule.capacity()));
        log::warn!(scope, name, per, threshold, used = used.as_str(), amount = amount.as_str();
            "budget_alert");
        self.notify_of(alert, Now::read());
    }

    /// The webhook's part alone. Told again what it was told before, it stays silent.
    pub(super) fn notify_of(&self, alert: &Alert, now: Now) {
        if self.snapshot.load().webhook.is_some() {
            self.alerts.push(budget(alert, now));
        }
    }

    /// Something of a provider's has changed: `kind` names it, `what` says whose.
    pub fn notice(&self, kind: &str, text: &str, mut what: Value, now: Timestamp) {
        if self.snapshot.load().webhook.is_none() {
            return;
        }
        let id = format!("{kind}|{what}|{now}");
        what["type"] = json!(kind);
        what["id"] = json!(id);
        what["ts"] = json!(now.to_string());
        what["text"] = json!(format!("weir: {text}"));
        self.alerts.push(Notice { id, body: what.to_string(), once: false });
    }
}

fn threshold(rule: &Rule) -> f64 {
    f64::from(rule.alert.unwrap_or_default()) / 1e6
}

fn budget(alert: &Alert, now: Now) -> Notice {
    let rule = &alert.rule;
    let period = match &rule.kind {
        Kind::Budget { per, zone, .. } => Some(per.at(now.wall, zone)),
        _ => None,
    };
    let at = |second: i64| Timestamp::from_second(second).ok().map(|at| at.to_string());
    let (start, end) = period.map_or((0, None), |p| (p.start, p.end));
    let (per, threshold) = (rule.per().unwrap_or_default(), threshold(rule));
    let id = format!("budget|{}|{per}|{start}|{threshold}", rule.id);
    let measure = rule.measure().unwrap_or(Measure::Money);
    let amount = |n: u64| match measure {
        Measure::Money => json!(weir_filters::usage::NanoUsd(n).to_string()),
        Measure::Tokens | Measure::Requests => json!(n),
    };
    let (used, limit) = (measure.show(alert.used), measure.show(rule.capacity()));
    let body = json!({
        "type": "budget",
        "id": id,
        "ts": now.wall.to_string(),
        "text": format!("weir: the budget of {} has reached {threshold}: {used} of {limit} per \
                         {per}", rule.owner),
        "scope": rule.owner.scope.as_str(),
        "name": &*rule.owner.name,
        "rule": &*rule.name,
        "per": per,
        "unit": measure.as_str(),
        "threshold": threshold,
        "used": amount(alert.used),
        "limit": amount(rule.capacity()),
        "period_start": end.and(at(start)),
        "resets_at": end.and_then(at),
    });
    Notice { id, body: body.to_string(), once: true }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::limit::{Owner, Per, Scope};
    use jiff::tz::TimeZone;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    #[test]
    fn an_alert_s_name_is_its_owner_period_and_threshold() {
        let kind = |amount| Kind::Budget {
            measure: Measure::Money,
            amount,
            per: Per::Day,
            zone: TimeZone::UTC,
        };
        let rule = |name: &str, part| {
            let owner = Owner::new(Scope::Team, name);
            let mut rule = Rule::new(&owner, "budget/usd/day", "usd per day", kind(2_000_000_000));
            rule.alert = Some(part);
            Arc::new(rule)
        };
        let now = Now { at: Instant::now(), wall: "2026-03-01T12:00:00Z".parse().unwrap() };
        let later = |hours: u64| Now { wall: now.wall + Duration::from_secs(3_600 * hours), ..now };
        let id =
            |name: &str, part, used, now| budget(&Alert { rule: rule(name, part), used }, now).id;
        let first = id("t", 800_000, 1, now);
        assert_eq!(first, id("t", 800_000, 2, later(11)), "the same day");
        for other in
            [id("t", 800_000, 1, later(12)), id("u", 800_000, 1, now), id("t", 900_000, 1, now)]
        {
            assert_ne!(first, other);
        }
        let body = budget(&Alert { rule: rule("t", 800_000), used: 1_700_000_000 }, now).body;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["used"], "1.700000");
        assert_eq!(body["resets_at"], "2026-03-02T00:00:00Z");
    }

    #[test]
    fn a_queue_that_nobody_empties_keeps_the_newest() {
        let alerts = Alerts::default();
        let notice = |n: usize| Notice { id: n.to_string(), body: String::new(), once: false };
        (0..QUEUE_MAX + 5).for_each(|n| alerts.push(notice(n)));
        assert_eq!(alerts.take(), Some(notice(5)));
    }
}
