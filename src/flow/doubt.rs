//! Providers' reports of usage against our own count.

use super::finish::Measured;
use super::ticket::Ticket;
use crate::meter::Outcome;
use weir_filters::usage::Source;
use weir_filters::wire::Tap;

impl Ticket {
    /// A whole answer with a report is one more comparison; a report that no model can mean is
    /// told.
    pub(super) fn compare(&self, outcome: Outcome, measured: &Measured, tap: Option<&mut Tap>) {
        let (Some(running), Some(tap)) = (self.running.as_ref(), tap) else { return };
        let metrics = &self.gateway.metrics;
        if measured.doubted {
            let (provider, model) = (running.provider.id.as_str(), &*running.model);
            metrics.doubted(provider);
            let usage = format!("{:?}", tap.usage.unwrap_or_default());
            log::warn!(provider, model, usage = usage.as_str(); "usage_implausible");
        } else if outcome == Outcome::Success
            && measured.source == Source::Provider
            && tap.counter.any()
        {
            metrics.compared(&running.model, measured.usage.output, || tap.counter.total());
        }
    }
}
