//! Tool calls of a deviating delta or message: told apart, numbered densely, begun once.

use super::members::{self, Members, put_key, put_member};
use super::state::{Call, State};
use crate::tokens::Channel;
use serde_json::value::RawValue;
use std::borrow::Cow;

const CALL: [&str; 5] = ["index", "id", "type", "function", "custom"];

/// One call's part in one delta, as it leaves.
pub(super) struct Fragment<'a> {
    /// Where its call stands in the choice.
    at: usize,
    /// It is the call's first.
    begins: bool,
    arguments: Option<String>,
    /// The `custom` member, as it came.
    custom: Option<&'a RawValue>,
    /// Members we do not know, as they came.
    rest: Members<'a>,
}

impl State {
    /// Takes the calls of a delta or message; at most one fragment for each call.
    pub(super) fn take_calls<'a>(&mut self, index: u32, said: &Members<'a>) -> Vec<Fragment<'a>> {
        let mut fragments = Vec::new();
        for (place, call) in said.list("tool_calls").into_iter().enumerate() {
            if let Some(call) = Members::read(call.get()) {
                self.take_call((index, place), call, &mut fragments);
            }
        }
        fragments
    }

    fn take_call<'a>(
        &mut self,
        (index, place): (u32, usize),
        call: Members<'a>,
        fragments: &mut Vec<Fragment<'a>>,
    ) {
        let custom = call.get("custom");
        let inner = call.object("function").or_else(|| call.object("custom")).unwrap_or_default();
        let given = call.text("id").unwrap_or_default();
        let name = inner.text("name").unwrap_or_default();
        let arguments = inner.get("arguments").or_else(|| inner.get("input")).map(as_text);
        // In a message every entry is a call of its own.
        let theirs = if self.whole { Some(place as u64) } else { call.number("index") };
        let made = format!("call_{}_{index}_", self.context.id.trim_start_matches("chatcmpl-"));
        let calls = &mut self.choice_mut(index).calls;
        let at = find(calls, theirs, &given, &name).unwrap_or_else(|| {
            calls.push(Call { index: theirs, blank: true, ..Call::default() });
            calls.len() - 1
        });
        let begun = calls.iter().filter(|call| call.number.is_some()).count();
        // No other call's, be it one that still waits for its name.
        let taken = |id: &str| (0..).zip(&*calls).any(|(n, call)| n != at && call.id == id);
        let none = given.is_empty() || taken(&given);
        let id = if none { format!("{made}{at}") } else { given.to_string() };
        let known = &mut calls[at];
        if known.given.is_empty() && known.number.is_none() {
            known.given = given.into_owned();
            known.id = id;
        }
        if known.name.is_empty() && known.number.is_none() {
            known.name = name.into_owned();
        }
        known.custom |= custom.is_some();
        known.blank &= arguments.as_deref().is_none_or(|text| text.trim().is_empty());
        if known.number.is_none() && known.name.is_empty() {
            known.held.push_str(&arguments.unwrap_or_default());
            return;
        }
        let begins = known.number.is_none();
        let number = *known.number.get_or_insert(u32::try_from(begun).unwrap_or(u32::MAX));
        let held = std::mem::take(&mut known.held);
        let name = if begins { known.name.clone() } else { String::new() };
        let arguments = match arguments {
            None if !begins => None,
            arguments => Some(held + &arguments.unwrap_or_default()),
        };
        self.started = true;
        self.say(index, Channel::Tool(number), &name);
        self.say(index, Channel::Tool(number), arguments.as_deref().unwrap_or_default());
        match fragments.iter_mut().find(|fragment| fragment.at == at) {
            Some(same) => {
                same.arguments.get_or_insert_default().push_str(&arguments.unwrap_or_default());
            }
            None => fragments.push(Fragment { at, begins, arguments, custom, rest: call }),
        }
    }

    /// The choice ends: a call without arguments gets the empty object, since clients parse them.
    pub(super) fn fill_calls(&mut self, index: u32, fragments: &mut Vec<Fragment<'_>>) {
        for (at, call) in self.choice_mut(index).calls.iter_mut().enumerate() {
            if !call.blank || call.custom {
                continue;
            }
            call.blank = false;
            match fragments.iter_mut().find(|fragment| fragment.at == at) {
                Some(fragment) => fragment.arguments = Some("{}".to_owned()),
                None => fragments.push(Fragment {
                    at,
                    begins: false,
                    arguments: Some("{}".to_owned()),
                    custom: None,
                    rest: Members::default(),
                }),
            }
        }
    }

    /// Writes the member `tool_calls`, if there is anything to say.
    pub(super) fn put_calls(&self, index: u32, fragments: &[Fragment<'_>], out: &mut Vec<u8>) {
        let Some(choice) = self.choice(index).filter(|_| !fragments.is_empty()) else { return };
        put_key("tool_calls", out);
        out.push(b'[');
        for (place, fragment) in fragments.iter().enumerate() {
            let call = &choice.calls[fragment.at];
            out.extend_from_slice(if place > 0 { b",{" } else { b"{" });
            if !self.whole {
                put_key("index", out);
                out.extend_from_slice(call.number.unwrap_or_default().to_string().as_bytes());
            }
            fragment.put(call, out);
            fragment.rest.put_rest(&CALL, out);
            out.push(b'}');
        }
        out.push(b']');
    }
}

impl Fragment<'_> {
    fn put(&self, call: &Call, out: &mut Vec<u8>) {
        if self.begins {
            put_member("id", &call.id, out);
            put_member("type", if call.custom { "custom" } else { "function" }, out);
        }
        if let Some(custom) = self.custom {
            put_key("custom", out);
            out.extend_from_slice(custom.get().as_bytes());
            return;
        }
        put_key("function", out);
        out.push(b'{');
        if self.begins {
            put_member("name", &call.name, out);
        }
        if let Some(arguments) = &self.arguments {
            put_member("arguments", arguments, out);
        }
        out.push(b'}');
    }
}

/// Which call a fragment belongs to. The index tells, unless the provider gives one index to two
/// calls: then another id beside a name begins a new one. Without an index the id tells, and
/// without both it goes on with the last.
fn find(calls: &[Call], index: Option<u64>, id: &str, name: &str) -> Option<usize> {
    if index.is_some() {
        let at = calls.iter().rposition(|call| call.index == index)?;
        let other = !id.is_empty() && !calls[at].given.is_empty() && calls[at].given != id;
        if other && !name.is_empty() {
            return calls.iter().rposition(|call| call.index == index && call.given == id);
        }
        return Some(at);
    }
    if !id.is_empty() {
        return calls.iter().rposition(|call| call.given == id);
    }
    if name.is_empty() { calls.len().checked_sub(1) } else { None }
}

/// Arguments as text: some providers send the object itself.
fn as_text(value: &RawValue) -> Cow<'_, str> {
    members::text(value).unwrap_or(Cow::Borrowed(value.get()))
}
