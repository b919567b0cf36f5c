//! Whether a chunk or a completion holds to the strict rules as it is, given all that came before.

use super::chunk::{Call, Chunk, Completion, Few, Said};
use super::state::{CHUNK, COMPLETION, Choice, State};
use super::{finish, members};
use serde_json::value::RawValue;
use std::ops::Range;

impl State {
    /// Nothing in this chunk deviates but members that [`Self::surplus`] cuts out of it.
    pub(super) fn fits(&self, chunk: &Chunk<'_>) -> bool {
        let head = match &self.head {
            Some(head) => {
                head.id == chunk.id && head.created == chunk.created && head.model == chunk.model
            }
            None => !chunk.id.is_empty() && !chunk.model.is_empty(),
        };
        let rising = chunk.choices.iter().zip(chunk.choices.iter().skip(1));
        head && chunk.error.is_none()
            && chunk.object == CHUNK
            && !chunk.choices.is_empty()
            && rising.into_iter().all(|(a, b)| a.index < b.index)
            && chunk.choices.iter().all(|choice| {
                let so_far = self.choice(choice.index);
                choice.index < super::CHOICES_MAX
                    && said_fits(so_far, &choice.delta.0)
                    && choice
                        .finish_reason
                        .is_none_or(|word| finish_fits(so_far, &choice.delta.0, word))
            })
    }

    /// What must be cut out of a chunk that [`Self::fits`], in order: usage, which has a chunk of
    /// its own, and each role but the first (OpenRouter repeats it on every delta).
    pub(super) fn surplus(&self, json: &str, chunk: &Chunk<'_>) -> Vec<Range<usize>> {
        let mut cuts = Vec::new();
        for choice in chunk.choices.iter() {
            let begun = self.choice(choice.index).is_some_and(|choice| choice.role);
            if let Some(Some(role)) = choice.delta.0.role.filter(|_| begun) {
                cuts.extend(members::cut_text(json, role));
            }
        }
        if let Some(usage) = chunk.usage.map(RawValue::get)
            && (usage != "null" || self.context.strip_usage)
        {
            cuts.extend(members::cut(json, usage));
        }
        cuts.sort_unstable_by_key(|cut| cut.start);
        cuts
    }

    /// Takes note of a chunk that [`Self::fits`].
    pub(super) fn pass(&mut self, chunk: &Chunk<'_>) {
        self.adopt(chunk.id, chunk.created, chunk.model);
        if let Some(usage) = chunk.usage.filter(|usage| usage.get() != "null") {
            self.note_usage(usage.get());
        }
        if let Some(groq) = chunk.x_groq {
            self.note_groq(groq.get());
        }
        for choice in chunk.choices.iter() {
            self.pass_said(choice.index, &choice.delta.0);
            let called = self.choice(choice.index).is_some_and(called);
            let ended = choice.finish_reason.and_then(|word| finish::known(word, called));
            if let Some(ended) = ended {
                self.end_choice(choice.index, ended);
            }
        }
    }

    /// Nothing in this completion deviates.
    pub(super) fn fits_whole(&self, completion: &Completion<'_>) -> bool {
        !completion.id.is_empty()
            && completion.object == COMPLETION
            && !completion.model.is_empty()
            && completion.error.is_none()
            && !completion.choices.is_empty()
            && completion.choices.iter().zip(0..).all(|(choice, place)| {
                choice.index == place && message_fits(&choice.message.0, choice.finish_reason)
            })
    }

    /// Takes note of a completion that [`Self::fits_whole`].
    pub(super) fn pass_whole(&mut self, completion: &Completion<'_>) {
        self.tap.model = Some(completion.model.to_owned());
        for choice in completion.choices.iter() {
            self.pass_said(choice.index, &choice.message.0);
            let called = self.choice(choice.index).is_some_and(called);
            if let Some(ended) = finish::known(choice.finish_reason, called) {
                self.end_choice(choice.index, ended);
            }
        }
    }
}

/// The choice has called something.
pub(super) fn called(choice: &Choice) -> bool {
    choice.legacy || !choice.calls.is_empty()
}

fn said_fits(so_far: Option<&Choice>, said: &Said<'_>) -> bool {
    let first = so_far.is_none_or(|choice| !choice.role);
    let role = if first { said.role == Some(Some("assistant")) } else { said.role != Some(None) };
    role && so_far.is_none_or(|choice| !choice.finished)
        && (said.reasoning.is_none() || said.reasoning_content.is_some())
        && said.tool_calls.as_ref().is_none_or(|calls| calls_fit(so_far, calls))
}

fn calls_fit(so_far: Option<&Choice>, calls: &Few<Call<'_>>) -> bool {
    let known = so_far.map(|choice| choice.calls.as_slice()).unwrap_or_default();
    let mut next = u32::try_from(known.len()).unwrap_or(u32::MAX);
    let old = next;
    // While a call waits for its name, indexes differ from the provider's.
    let waiting = known.iter().any(|call| call.number.is_none());
    !waiting
        && calls.iter().enumerate().all(|(place, call)| {
            let Some(index) = call.index.filter(|_| call.custom.is_none()) else { return false };
            if index < old {
                let mut later = known.iter().rev();
                let found = later.find(|known| known.index == Some(index.into()));
                let nothing_new = blank(call.id) && name(call).is_empty();
                return nothing_new && found.is_some_and(|found| found.number == Some(index));
            }
            next += 1;
            let id = call.id.unwrap_or_default();
            let twice = known.iter().any(|known| known.id == id)
                || known.iter().any(|known| known.index == Some(index.into()))
                || calls.iter().take(place).any(|other| other.id == call.id);
            index == next - 1 && starts(call) && !twice
        })
}

/// A whole call's members, or those of its first fragment.
fn starts(call: &Call<'_>) -> bool {
    !blank(call.id)
        && call.kind == Some("function")
        && !name(call).is_empty()
        && call.function.as_ref().is_some_and(|function| function.arguments.is_some())
}

fn blank(text: Option<&str>) -> bool {
    text.is_none_or(str::is_empty)
}

fn name<'c>(call: &'c Call<'_>) -> &'c str {
    let name = call.function.as_ref().and_then(|function| function.name.as_ref());
    name.map_or("", |name| &name.0)
}

fn arguments<'c>(call: &'c Call<'_>) -> &'c str {
    let function = call.function.as_ref();
    function.and_then(|function| function.arguments.as_ref()).map_or("", |a| &a.0)
}

/// The word is the specification's, and no call ends without its arguments.
fn finish_fits(so_far: Option<&Choice>, said: &Said<'_>, word: &str) -> bool {
    let fragments = said.tool_calls.iter().flat_map(Few::iter);
    let any = said.function_call.is_some()
        || so_far.is_some_and(called)
        || fragments.clone().next().is_some();
    let filled = |index: u32| {
        let mut of_call = fragments.clone().filter(|call| call.index == Some(index));
        of_call.any(|call| !arguments(call).trim().is_empty())
    };
    let known = so_far.map(|choice| choice.calls.as_slice()).unwrap_or_default();
    // A call that still waits for its name would be lost here.
    let old = known.iter().all(|call| call.number.is_some_and(|n| !call.blank || filled(n)));
    let new = fragments
        .clone()
        .filter_map(|call| call.index)
        .all(|index| known.iter().any(|call| call.number == Some(index)) || filled(index));
    finish::known(word, any).is_some() && (word == "length" || (old && new))
}

fn message_fits(said: &Said<'_>, word: &str) -> bool {
    let calls = || said.tool_calls.iter().flat_map(Few::iter);
    let called = said.function_call.is_some() || calls().next().is_some();
    said.role == Some(Some("assistant"))
        && said.content.is_some()
        && (said.reasoning.is_none() || said.reasoning_content.is_some())
        && finish::known(word, called).is_some()
        && calls().enumerate().all(|(place, call)| {
            let filled = word == "length" || !arguments(call).trim().is_empty();
            let plain = call.custom.is_none() && starts(call);
            plain && filled && calls().take(place).all(|other| other.id != call.id)
        })
}
